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

# Machines written by hand, made as sysfs trees. NVML is a library of ours that tells what a file says.
add_library(fake_nvml SHARED topo/fake_nvml.c)
set_target_properties(fake_nvml PROPERTIES OUTPUT_NAME nvidia-ml SOVERSION 1
  LIBRARY_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/tests/nvml)
# Loaded at run time like the real one, which has no sanitizer either.
target_compile_options(fake_nvml PRIVATE -fno-sanitize=all)
target_link_options(fake_nvml PRIVATE -fno-sanitize=all)
add_executable(topo_machines topo/machines.c topo/machine.c)
target_link_libraries(topo_machines PRIVATE topo_table)
add_dependencies(topo_machines fake_nvml)
set_target_properties(topo_machines PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/tests)
add_test(NAME topo_machines COMMAND topo_machines ${CMAKE_CURRENT_SOURCE_DIR}/topo/machines)
set_tests_properties(topo_machines PROPERTIES TIMEOUT 120 LABELS unit
  ENVIRONMENT LD_LIBRARY_PATH=${CMAKE_BINARY_DIR}/tests/nvml)

foreach(name graph merge trees odd_sysfs)
  add_executable(topo_${name} topo/${name}.c topo/machine.c)
  target_link_libraries(topo_${name} PRIVATE topo_table PkgConfig::CMOCKA)
  set_target_properties(topo_${name} PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/tests)
  add_test(NAME topo_${name} COMMAND topo_${name})
  set_tests_properties(topo_${name} PROPERTIES TIMEOUT 120 LABELS unit)
endforeach()

# 1000 GPUs: checks the answers, prints time and memory.
add_executable(topo_big topo/big.c)
target_link_libraries(topo_big PRIVATE topo_table)
set_target_properties(topo_big PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/tests)
add_test(NAME topo_big COMMAND topo_big)
set_tests_properties(topo_big PROPERTIES TIMEOUT 120 LABELS bench)
