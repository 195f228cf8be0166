# SPDX-License-Identifier: Apache-2.0
# Python's build uses the compiler that built Python, `g++` or `x86_64-linux-gnu-g++`; `make` uses CMake's choice, `c++`.
# If both names are one file, it is called as `make` calls it, because ccache treats another name as another compiler.
if(DEFINED ENV{CXX})
  find_program(asked_for $ENV{CXX} NO_CACHE)
  find_program(usual c++ NO_CACHE)
  file(REAL_PATH "${asked_for}" asked_for)
  file(REAL_PATH "${usual}" usual)
  if(asked_for STREQUAL usual)
    set(ENV{CXX} c++)
  endif()
endif()
