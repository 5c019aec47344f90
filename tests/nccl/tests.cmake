# The plugin as NCCL drives it: every API version, over the simulated fabric.
add_library(nccl_net STATIC nccl/net.c nccl/net_calls.c nccl/fixture.c)
target_include_directories(nccl_net PUBLIC nccl ../plugin ../core/include ../sim/include)
target_link_libraries(nccl_net PUBLIC sim_fabric ${CMAKE_DL_LIBS})

add_executable(nccl_cases nccl/cases.c)
target_link_libraries(nccl_cases PRIVATE nccl_net PkgConfig::CMOCKA)
set_target_properties(nccl_cases PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/tests)
add_dependencies(nccl_cases nccl-net-switchback sim_verbs)

add_executable(nccl_proxy nccl/proxy.c nccl/proxy_rank.c nccl/stream.c)
target_link_libraries(nccl_proxy PRIVATE nccl_net Threads::Threads)
set_target_properties(nccl_proxy PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/tests)
add_dependencies(nccl_proxy nccl-net-switchback sim_verbs)

set(NCCL_PLUGIN $<TARGET_FILE:nccl-net-switchback>)
set(NCCL_VERBS ${CMAKE_BINARY_DIR}/sim/libibverbs.so.1)
foreach(version RANGE 6 12)
  add_test(NAME nccl_cases_v${version} COMMAND nccl_cases ${NCCL_PLUGIN} ${NCCL_VERBS} ${version})
  set_tests_properties(nccl_cases_v${version} PROPERTIES TIMEOUT 300 LABELS nccl)
endforeach()
