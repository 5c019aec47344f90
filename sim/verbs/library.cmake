# The drop-in libibverbs.so.1: the static library's sources, and what only a shared library can have
# (symbol versions of old interfaces, symbols for provider libraries).
file(GLOB SHARED_SOURCES CONFIGURE_DEPENDS verbs/shared/*.c)
add_library(sim_verbs SHARED ${SHARED_SOURCES} ${SIM_SOURCES} ${FABRIC_SOURCES})
target_include_directories(sim_verbs PRIVATE include .)
target_link_libraries(sim_verbs PRIVATE PkgConfig::ISAL Threads::Threads)
set(LIBIBVERBS_MAP ${CMAKE_CURRENT_SOURCE_DIR}/verbs/libibverbs.map)
target_link_options(sim_verbs PRIVATE -Wl,--version-script=${LIBIBVERBS_MAP})
set_target_properties(sim_verbs PROPERTIES
  OUTPUT_NAME ibverbs VERSION 1 SOVERSION 1
  LIBRARY_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/sim
  LINK_DEPENDS ${LIBIBVERBS_MAP})
install(TARGETS sim_verbs LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR}/switchback)
