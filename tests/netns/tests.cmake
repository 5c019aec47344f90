# Namespaces with simulated devices here; exit 77 where root or namespaces are missing.
foreach(name rails verbs perf faults proxy)
  add_test(NAME netns_${name} COMMAND bash ${CMAKE_CURRENT_LIST_DIR}/${name}.sh ${CMAKE_BINARY_DIR} sim)
  set_tests_properties(netns_${name} PROPERTIES TIMEOUT 600 SKIP_RETURN_CODE 77 RUN_SERIAL TRUE LABELS netns)
endforeach()

# Nothing in them depends on how the code was built.
if(NOT SB_SANITIZE)
  foreach(name sim loopback)
    add_test(NAME netns_demo_${name} COMMAND bash ${CMAKE_CURRENT_LIST_DIR}/demo.sh ${CMAKE_BINARY_DIR} ${name})
    set_tests_properties(netns_demo_${name} PROPERTIES TIMEOUT 300 SKIP_RETURN_CODE 77 RUN_SERIAL TRUE LABELS netns)
  endforeach()
  add_test(NAME netns_vm COMMAND bash ${CMAKE_CURRENT_LIST_DIR}/vm.sh)
  set_tests_properties(netns_vm PROPERTIES TIMEOUT 300 SKIP_RETURN_CODE 77 RUN_SERIAL TRUE LABELS netns)
endif()

# The kernel's rxe: one line in vm.list is one test. Slow where the guest is emulated, so asked for;
# tests/run.sh asks.
option(SB_VM_TESTS "Tests against the kernel's rxe, in a QEMU guest where this kernel has none" OFF)
if(SB_VM_TESTS)
  file(STRINGS ${CMAKE_CURRENT_LIST_DIR}/vm.list VM_TESTS REGEX "^[a-z]")
  foreach(line ${VM_TESTS})
    string(REGEX REPLACE "^([^ ]+) ([0-9]+) .*" "\\1;\\2" fields "${line}")
    list(GET fields 0 name)
    list(GET fields 1 seconds)
    math(EXPR seconds "${seconds} * 2 + 300")
    add_test(NAME rxe_${name} COMMAND bash ${CMAKE_CURRENT_LIST_DIR}/on_rxe.sh ${CMAKE_BINARY_DIR} ${name})
    set_tests_properties(rxe_${name} PROPERTIES TIMEOUT ${seconds} SKIP_RETURN_CODE 77 RUN_SERIAL TRUE LABELS rxe)
  endforeach()
endif()
set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${CMAKE_CURRENT_LIST_DIR}/vm.list)
