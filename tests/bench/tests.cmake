# Measurements are built with the tests and run by hand.
if(TARGET sim_verbs)
  add_executable(fabric_speed bench/fabric_speed.c)
  target_include_directories(fabric_speed PRIVATE ../sim/include)
  target_link_libraries(fabric_speed PRIVATE sim_verbs sim_fabric)
  set_target_properties(fabric_speed PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/bench)
endif()
