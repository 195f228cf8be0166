# SPDX-License-Identifier: Apache-2.0
# Settings that a wheel's build has in common with that of `make`: where ccache is there, the same source is the same compilation,
# in whatever folder it lies.
find_program(TITHE_CCACHE ccache)
get_filename_component(compiler ${CMAKE_CXX_COMPILER} REALPATH) # which may be ccache under another name
if(TITHE_CCACHE AND NOT CMAKE_CXX_COMPILER_LAUNCHER AND NOT compiler MATCHES "ccache")
  set(CMAKE_CXX_COMPILER_LAUNCHER env CCACHE_BASEDIR=${PROJECT_SOURCE_DIR} ${TITHE_CCACHE})
  set(CMAKE_DISABLE_PRECOMPILE_HEADERS ON) # it cannot look through them
  # `make` compiles with -Werror. What this compiler has passed in this very tree it passes again, and is then known.
  if(EXISTS ${PROJECT_SOURCE_DIR}/build/build.ninja)
    file(STRINGS ${PROJECT_SOURCE_DIR}/build/CMakeCache.txt strict REGEX "^TITHE_WERROR:BOOL=ON$")
    if(strict)
      set(TITHE_WERROR ON)
    endif()
  endif()
endif()
