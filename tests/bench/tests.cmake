# Measurements are run by hand; that they run at all is a test.
if(TARGET sim_verbs)
  add_executable(fabric_speed bench/fabric_speed.c)
  target_include_directories(fabric_speed PRIVATE ../sim/include)
  target_link_libraries(fabric_speed PRIVATE sim_verbs sim_fabric)
  set_target_properties(fabric_speed PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/bench)

  add_executable(connection_cost bench/connection_cost.c)
  target_include_directories(connection_cost PRIVATE ../sim/include ../core)
  target_link_libraries(connection_cost PRIVATE switchback_static sim_fabric)
  set_target_properties(connection_cost PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/bench)
  add_test(NAME bench_connection_cost COMMAND connection_cost 1 20)
  set_tests_properties(bench_connection_cost PROPERTIES TIMEOUT 300 LABELS bench)
endif()
