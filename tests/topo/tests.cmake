# Topology: programs that need more than one source.
add_library(topo_table STATIC topo/table.c)
target_include_directories(topo_table PUBLIC . ../core ../core/include)
target_link_libraries(topo_table PUBLIC switchback_static)

# Against NCCL's own answers for files of real machines, which are not part of this repository.
add_executable(topo_expected topo/expected.c)
target_link_libraries(topo_expected PRIVATE topo_table)
set_target_properties(topo_expected PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/tests)
add_test(NAME topo_expected COMMAND topo_expected ${CMAKE_SOURCE_DIR}/../shared/topologies)
set_tests_properties(topo_expected PROPERTIES TIMEOUT 120 SKIP_RETURN_CODE 77 LABELS unit)
