# SPDX-License-Identifier: Apache-2.0
# Python's build asks for the compiler that Python was made with, `g++` or `x86_64-linux-gnu-g++`; `make` takes CMake's
# choice, `c++`. Where these are one file it is called as `make` calls it: to ccache another name is another compiler.
if(DEFINED ENV{CXX})
  find_program(asked_for $ENV{CXX} NO_CACHE)
  find_program(usual c++ NO_CACHE)
  file(REAL_PATH "${asked_for}" asked_for)
  file(REAL_PATH "${usual}" usual)
  if(asked_for STREQUAL usual)
    set(ENV{CXX} c++)
  endif()
endif()
