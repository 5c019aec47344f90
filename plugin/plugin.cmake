# SPDX-License-Identifier: Apache-2.0
# The plugin: one file that needs only libc and libnl at run time, see tests/nccl/check_library.sh.
add_library(nccl-net-switchback MODULE ${PLUGIN_SOURCES})
target_include_directories(nccl-net-switchback PRIVATE . ../core/include)
# Archives are taken apart by function and only what is reached stays. NCCL unloads plugins while
# libswitchback's monitor may still run (APIs before v11 have no finalize): nodelete.
target_link_options(nccl-net-switchback PRIVATE
  -Wl,--version-script=${CMAKE_CURRENT_SOURCE_DIR}/plugin.map -Wl,--exclude-libs,ALL
  -Wl,--gc-sections -Wl,--as-needed -Wl,-z,nodelete -Wl,-z,now)
set_target_properties(nccl-net-switchback PROPERTIES
  LINK_DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/plugin.map)
target_link_libraries(nccl-net-switchback PRIVATE switchback_static)
install(TARGETS nccl-net-switchback LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR})
