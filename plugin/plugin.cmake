# SPDX-License-Identifier: Apache-2.0
# The plugin: one file that needs only libc and libnl at run time, see tests/nccl/check_library.sh.
add_library(nccl-net-switchback MODULE ${PLUGIN_SOURCES})
target_include_directories(nccl-net-switchback PRIVATE . ../core/include)
# Archives are taken apart by function and only what is reached stays. NCCL unloads plugins while
# libswitchback's monitor may still run (APIs before v11 have no finalize): nodelete.
target_link_options(nccl-net-switchback PRIVATE
  -Wl,--version-script=${CMAKE_CURRENT_SOURCE_DIR}/plugin.map -Wl,--exclude-libs,ALL
  -Wl,--gc-sections -Wl,--as-needed -Wl,-z,nodelete -Wl,-z,now)
# A newer glibc binds these names to new versions; the old ones are still there (old_libc.c). Before
# 2.34 they were in libraries of their own. Sanitizers have wrappers for the same names.
include(CheckSymbolExists)
check_symbol_exists(__GLIBC__ features.h HAVE_GLIBC)
if(HAVE_GLIBC AND CMAKE_SYSTEM_PROCESSOR STREQUAL "x86_64" AND NOT SB_SANITIZE)
  foreach(name dlclose dlerror dlopen dlsym dlvsym pthread_create pthread_join pthread_once
      pthread_setname_np pthread_sigmask stat fstat)
    target_link_options(nccl-net-switchback PRIVATE -Wl,--wrap=${name})
  endforeach()
  target_link_libraries(nccl-net-switchback PRIVATE
    -Wl,--push-state,--no-as-needed -l:libpthread.so.0 -l:libdl.so.2 -Wl,--pop-state)
else()
  set_source_files_properties(old_libc.c PROPERTIES HEADER_FILE_ONLY TRUE)
endif()
set_target_properties(nccl-net-switchback PROPERTIES
  LINK_DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/plugin.map)
target_link_libraries(nccl-net-switchback PRIVATE switchback_static)
install(TARGETS nccl-net-switchback LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR})
# RCCL's name for it.
install(CODE "file(CREATE_LINK libnccl-net-switchback.so
  \"\$ENV{DESTDIR}\${CMAKE_INSTALL_PREFIX}/${CMAKE_INSTALL_LIBDIR}/librccl-net-switchback.so\" SYMBOLIC)")
