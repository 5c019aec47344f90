# The protocol's model, checked with spin; run.sh --large is run by name.
foreach(size small mutants)
  add_test(NAME model_${size} COMMAND bash ${CMAKE_SOURCE_DIR}/tests/model/run.sh --${size})
  set_tests_properties(model_${size} PROPERTIES TIMEOUT 900 SKIP_RETURN_CODE 77 LABELS model)
endforeach()
