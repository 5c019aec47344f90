# The seeded simulation: tests/sim. CI runs a fixed range of seeds; any other range by hand.
file(GLOB CONN_SIM_SOURCES CONFIGURE_DEPENDS ${CMAKE_CURRENT_LIST_DIR}/*.c)
add_executable(conn_sim ${CONN_SIM_SOURCES})
target_include_directories(conn_sim PRIVATE ${CMAKE_CURRENT_LIST_DIR} ../core ../sim ../sim/include)
target_link_libraries(conn_sim PRIVATE switchback_static sim_static)
set_target_properties(conn_sim PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/tests)
if(SB_SANITIZE)
  set(CONN_SIM_SEEDS 1:300)
  set(CONN_SIM_RXE_SEEDS 1:100)
  set(CONN_SIM_JOBS 1) # no fork under sanitizers
else()
  set(CONN_SIM_SEEDS 1:20000)
  set(CONN_SIM_RXE_SEEDS 1:3000)
  include(ProcessorCount)
  ProcessorCount(CONN_SIM_JOBS)
  if(CONN_SIM_JOBS LESS 1 OR CONN_SIM_JOBS GREATER 64)
    set(CONN_SIM_JOBS 2)
  endif()
endif()
add_test(NAME conn_sim_steps COMMAND conn_sim --steps)
set_tests_properties(conn_sim_steps PROPERTIES TIMEOUT 300 LABELS simulation)
add_test(NAME conn_sim COMMAND conn_sim --seeds ${CONN_SIM_SEEDS} --jobs ${CONN_SIM_JOBS})
set_tests_properties(conn_sim PROPERTIES TIMEOUT 1800 LABELS simulation PROCESSORS ${CONN_SIM_JOBS})
# Each named case is a test of its own.
set(CONN_SIM_CASES ${CMAKE_CURRENT_LIST_DIR}/cases_faults.c ${CMAKE_CURRENT_LIST_DIR}/cases_life.c)
set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${CONN_SIM_CASES})
foreach(source ${CONN_SIM_CASES})
  file(STRINGS ${source} lines REGEX "\\.name = \"")
  foreach(line ${lines})
    string(REGEX REPLACE ".*\\.name = \"([a-z0-9_]+)\".*" "\\1" name "${line}")
    add_test(NAME conn_sim_case_${name} COMMAND conn_sim --case ${name})
    set_tests_properties(conn_sim_case_${name} PROPERTIES TIMEOUT 300 LABELS simulation)
  endforeach()
endforeach()
add_test(NAME conn_sim_rxe COMMAND conn_sim --rxe --seeds ${CONN_SIM_RXE_SEEDS} --jobs ${CONN_SIM_JOBS})
add_test(NAME conn_sim_cases_rxe COMMAND conn_sim --rxe --cases)
add_test(NAME conn_sim_steps_rxe COMMAND conn_sim --rxe --steps)
set_tests_properties(conn_sim_rxe conn_sim_cases_rxe conn_sim_steps_rxe PROPERTIES TIMEOUT 900 LABELS simulation)

# The same, with the protocol compiled so that it can be broken (core/util/mutant.h).
file(GLOB MUTANT_SOURCES CONFIGURE_DEPENDS ../core/util/*.c ../core/verbs/*.c ../core/link/*.c ../core/topo/*.c
     ../core/conn/*.c ../core/stats/*.c)
add_executable(conn_sim_mutants ${CONN_SIM_SOURCES} ${MUTANT_SOURCES})
target_compile_definitions(conn_sim_mutants PRIVATE SB_MUTANTS)
target_include_directories(conn_sim_mutants PRIVATE ${CMAKE_CURRENT_LIST_DIR} ../core ../core/include ../sim ../sim/include)
target_link_libraries(conn_sim_mutants PRIVATE sim_static PkgConfig::NL PkgConfig::EXPAT PkgConfig::JANSSON
                      ${CMAKE_DL_LIBS} m)
# And with core's allocations counted and refused (memory.c).
set_source_files_properties(${MUTANT_SOURCES} PROPERTIES COMPILE_DEFINITIONS
  "malloc=sb_test_malloc;calloc=sb_test_calloc;realloc=sb_test_realloc;aligned_alloc=sb_test_aligned_alloc;free=sb_test_free")
set_target_properties(conn_sim_mutants PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/tests)
if(NOT SB_SANITIZE)
  add_test(NAME conn_sim_mutants COMMAND conn_sim_mutants --mutants 20000)
  set_tests_properties(conn_sim_mutants PROPERTIES TIMEOUT 1200 LABELS simulation)
  add_test(NAME conn_sim_memory COMMAND conn_sim_mutants --memory)
  set_tests_properties(conn_sim_memory PROPERTIES TIMEOUT 300 LABELS simulation)
  # What a violation looks like, found by several workers.
  add_test(NAME conn_sim_jobs COMMAND conn_sim_mutants --mutant COMPLETE_ON_POSTING --seeds 1:50 --jobs 3)
  set_tests_properties(conn_sim_jobs PROPERTIES TIMEOUT 300 LABELS simulation
    PASS_REGULAR_EXPRESSION "replay: .*conn_sim_mutants --mutant COMPLETE_ON_POSTING --seed [0-9]+ --trace")
  # The matrices in tests/README.md name tests that exist: of a build that has them all.
  add_test(NAME readme_names_tests COMMAND bash ${CMAKE_SOURCE_DIR}/tests/readme.sh ${CMAKE_BINARY_DIR})
  set_tests_properties(readme_names_tests PROPERTIES TIMEOUT 60 LABELS unit)
endif()
