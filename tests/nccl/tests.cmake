# The plugin as NCCL drives it: every API version, over the simulated fabric.
add_library(nccl_net STATIC nccl/net.c nccl/net_calls.c nccl/fixture.c)
target_include_directories(nccl_net PUBLIC nccl ../plugin ../core/include ../sim/include)
target_link_libraries(nccl_net PUBLIC sim_fabric ${CMAKE_DL_LIBS})

add_executable(nccl_cases nccl/cases.c nccl/cases_match.c nccl/cases_life.c nccl/cases_device.c
  nccl/cases_wrong.c)
target_link_libraries(nccl_cases PRIVATE nccl_net PkgConfig::CMOCKA)
set_target_properties(nccl_cases PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/tests)
add_dependencies(nccl_cases nccl-net-switchback sim_verbs)

add_executable(nccl_settings nccl/settings.c nccl/settings_data.c nccl/settings_pci.c)
target_link_libraries(nccl_settings PRIVATE nccl_net PkgConfig::CMOCKA)
set_target_properties(nccl_settings PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/tests)
add_dependencies(nccl_settings nccl-net-switchback sim_verbs)

add_executable(nccl_proxy nccl/proxy.c nccl/proxy_rank.c nccl/stream.c ../core/cli/perf_netns.c)
target_include_directories(nccl_proxy PRIVATE ../core)
target_link_libraries(nccl_proxy PRIVATE nccl_net Threads::Threads)
set_target_properties(nccl_proxy PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/tests)
add_dependencies(nccl_proxy nccl-net-switchback sim_verbs)

# What NCCL does without the plugin: that real.sh can compare with it.
add_executable(nccl_stock nccl/stock.c)
target_link_libraries(nccl_stock PRIVATE nccl_net Threads::Threads)
set_target_properties(nccl_stock PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/tests)
add_dependencies(nccl_stock sim_verbs)

set(NCCL_PLUGIN $<TARGET_FILE:nccl-net-switchback>)
set(NCCL_VERBS ${CMAKE_BINARY_DIR}/sim/libibverbs.so.1)
foreach(version RANGE 6 12)
  add_test(NAME nccl_cases_v${version} COMMAND nccl_cases ${NCCL_PLUGIN} ${NCCL_VERBS} ${version})
  set_tests_properties(nccl_cases_v${version} PROPERTIES TIMEOUT 300 LABELS nccl)
endforeach()
add_test(NAME nccl_settings COMMAND nccl_settings ${NCCL_PLUGIN} ${NCCL_VERBS})
set_tests_properties(nccl_settings PROPERTIES TIMEOUT 120 LABELS nccl)

add_test(NAME nccl_stock COMMAND nccl_stock ${NCCL_VERBS})
set_tests_properties(nccl_stock PROPERTIES TIMEOUT 60 LABELS nccl)

# NCCL's proxy as two processes, all data verified: every version while ports go down, every kind of
# fault through the newest one.
foreach(version RANGE 6 12)
  add_test(NAME nccl_proxy_v${version}
    COMMAND nccl_proxy ${NCCL_PLUGIN} ${NCCL_VERBS} ${version} --seconds 2 --faults down)
  list(APPEND NCCL_PROXY_TESTS nccl_proxy_v${version})
endforeach()
foreach(faults none blackhole oneway die all)
  add_test(NAME nccl_proxy_${faults}
    COMMAND nccl_proxy ${NCCL_PLUGIN} ${NCCL_VERBS} 12 --seconds 2 --faults ${faults})
  list(APPEND NCCL_PROXY_TESTS nccl_proxy_${faults})
endforeach()
add_test(NAME nccl_proxy_virtual
  COMMAND nccl_proxy ${NCCL_PLUGIN} ${NCCL_VERBS} 12 --seconds 2 --faults down --virtual)
add_test(NAME nccl_proxy_many
  COMMAND nccl_proxy ${NCCL_PLUGIN} ${NCCL_VERBS} 11 --seconds 2 --faults down --comms 8)
# A port whose own end sees it at once (the other end has to be told), a rail that is silent.
add_test(NAME nccl_proxy_off_down COMMAND nccl_proxy ${NCCL_PLUGIN} ${NCCL_VERBS} 12 --seconds 1
  --no-failover host0.rail0:down)
add_test(NAME nccl_proxy_off_blackhole COMMAND nccl_proxy ${NCCL_PLUGIN} ${NCCL_VERBS} 11 --seconds 1
  --no-failover host1.rail0:blackhole:in)
set_tests_properties(nccl_proxy_off_blackhole PROPERTIES
  ENVIRONMENT "NCCL_IB_TIMEOUT=14;NCCL_IB_RETRY_CNT=3")
add_test(NAME nccl_proxy_kill COMMAND nccl_proxy ${NCCL_PLUGIN} ${NCCL_VERBS} 12 --seconds 1 --kill)
set_tests_properties(${NCCL_PROXY_TESTS} nccl_proxy_virtual nccl_proxy_many nccl_proxy_kill
  nccl_proxy_off_down nccl_proxy_off_blackhole
  PROPERTIES TIMEOUT 240 RUN_SERIAL TRUE LABELS nccl)

add_test(NAME nccl_library COMMAND bash ${CMAKE_CURRENT_SOURCE_DIR}/nccl/check_library.sh ${NCCL_PLUGIN})
set_tests_properties(nccl_library PROPERTIES SKIP_RETURN_CODE 77 LABELS nccl)

# Before v11 there is no finalize: what the plugin holds at exit is no leak, and LeakSanitizer does
# not cope with threads that still run.
foreach(version RANGE 6 10)
  set_tests_properties(nccl_cases_v${version} nccl_proxy_v${version}
    PROPERTIES ENVIRONMENT ASAN_OPTIONS=detect_leaks=0)
endforeach()
