# SPDX-License-Identifier: Apache-2.0
# cmake --install: both kinds of library, or the one that BUILD_SHARED_LIBS names; headers, the command with its man
# page and completions, and the files of find_package and pkg-config.
include(GNUInstallDirs)
include(CMakePackageConfigHelpers)

set(package ${CMAKE_INSTALL_LIBDIR}/cmake/tithe)
if(NOT DEFINED BUILD_SHARED_LIBS)
  set(kinds static shared)
elseif(BUILD_SHARED_LIBS)
  set(kinds shared)
else()
  set(kinds static)
endif()
foreach(kind ${kinds})
  set(target tithe)
  if(kind STREQUAL shared)
    set(target tithe_shared)
  endif()
  install(TARGETS ${target} EXPORT tithe_${kind} INCLUDES DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})
  install(EXPORT tithe_${kind} NAMESPACE tithe:: FILE tithe-${kind}.cmake DESTINATION ${package})
endforeach()
install(DIRECTORY include/tithe DESTINATION ${CMAKE_INSTALL_INCLUDEDIR} FILES_MATCHING PATTERN "*.h" PATTERN "*.def")

configure_package_config_file(cmake/tithe-config.cmake.in ${PROJECT_BINARY_DIR}/cmake/tithe-config.cmake
  INSTALL_DESTINATION ${package})
write_basic_package_version_file(${PROJECT_BINARY_DIR}/cmake/tithe-config-version.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/cmake/tithe-config.cmake ${PROJECT_BINARY_DIR}/cmake/tithe-config-version.cmake
  cmake/needs.cmake DESTINATION ${package})

# The prefix is relative to the file's folder, so that an installed tree can be moved.
file(RELATIVE_PATH up /${CMAKE_INSTALL_LIBDIR}/pkgconfig /)
string(REGEX REPLACE "/$" "" up ${up})
if(TITHE_UCX)
  set(TITHE_PC_UCX " ucx,")
endif()
configure_file(cmake/tithe.pc.in ${PROJECT_BINARY_DIR}/cmake/tithe.pc @ONLY)
install(FILES ${PROJECT_BINARY_DIR}/cmake/tithe.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)
install(FILES LICENSE CHANGELOG.md DESTINATION ${CMAKE_INSTALL_DOCDIR})

if(TITHE_CLI)
  install(TARGETS tithe_cli RUNTIME)
endif()
# The command writes its manual page and completions itself, so a cross build has none.
if(TITHE_CLI AND NOT CMAKE_CROSSCOMPILING)
  set(written)
  macro(tithe_writes file folder) # the words of the command follow
    set(path ${PROJECT_BINARY_DIR}/share/${file})
    add_custom_command(OUTPUT ${path} COMMAND tithe_cli ${ARGN} > ${path} DEPENDS tithe_cli VERBATIM)
    install(FILES ${path} DESTINATION ${folder})
    list(APPEND written ${path})
  endmacro()
  file(MAKE_DIRECTORY ${PROJECT_BINARY_DIR}/share)
  tithe_writes(tithe.1 ${CMAKE_INSTALL_MANDIR}/man1 man)
  tithe_writes(tithe ${CMAKE_INSTALL_DATADIR}/bash-completion/completions completion bash)
  tithe_writes(_tithe ${CMAKE_INSTALL_DATADIR}/zsh/site-functions completion zsh)
  tithe_writes(tithe.fish ${CMAKE_INSTALL_DATADIR}/fish/vendor_completions.d completion fish)
  add_custom_target(tithe_share ALL DEPENDS ${written})
endif()
