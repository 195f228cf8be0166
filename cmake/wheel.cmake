# SPDX-License-Identifier: Apache-2.0
# Settings that a wheel's build shares with `make`, so that ccache compiles the same source once, in any folder.
find_program(TITHE_CCACHE ccache)
get_filename_component(compiler ${CMAKE_CXX_COMPILER} REALPATH) # which may be ccache under another name
if(TITHE_CCACHE AND NOT CMAKE_CXX_COMPILER_LAUNCHER AND NOT compiler MATCHES "ccache")
  set(CMAKE_CXX_COMPILER_LAUNCHER env CCACHE_BASEDIR=${PROJECT_SOURCE_DIR} ${TITHE_CCACHE})
  set(CMAKE_DISABLE_PRECOMPILE_HEADERS ON) # it cannot look through them
  # `make` compiles with -Werror. With the same flag, the cache has the objects of the same source.
  if(EXISTS ${PROJECT_SOURCE_DIR}/build/build.ninja)
    file(STRINGS ${PROJECT_SOURCE_DIR}/build/CMakeCache.txt strict REGEX "^TITHE_WERROR:BOOL=ON$")
    if(strict)
      set(TITHE_WERROR ON)
    endif()
  endif()
endif()
