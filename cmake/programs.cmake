# SPDX-License-Identifier: Apache-2.0
# The programs of codecs/ as a part of the library: a small tool, linked from the library's own objects, writes their C++,
# which is compiled once for each level (src/lang/cpp/object_cache.h). So they need no compiler where they run.
# Not where what is built here cannot run, and not for other processors than these.
set(TITHE_LEVELS 0)
if(CMAKE_SYSTEM_PROCESSOR MATCHES "^(x86_64|AMD64|amd64)$")
  set(TITHE_LEVELS 1 2)
endif()
set(march_1 -march=x86-64-v3)
set(march_2 -march=x86-64-v4)
set(folder ${PROJECT_BINARY_DIR}/programs)
set(made)
if(CMAKE_CROSSCOMPILING)
  file(WRITE ${folder}/built_in.cc
    "#include \"lang/cpp/object_cache.h\"\nstd::span<const tithe::lang::BuiltIn> tithe::lang::built_in() { return {}; }\n")
else()
  add_executable(emit_programs codecs/emit_programs.cc $<TARGET_OBJECTS:tithe_objects>)
  target_include_directories(emit_programs PRIVATE include src codecs)
  target_link_libraries(emit_programs PRIVATE tithe_flags Threads::Threads ${TITHE_NEEDS} ${CMAKE_DL_LIBS})
  file(STRINGS codecs/programs.def lines REGEX "^TITHE_PROGRAM")
  set(names)
  foreach(line ${lines})
    string(REGEX REPLACE "^TITHE_PROGRAM\\(([a-z0-9_]+),.*" "\\1" name "${line}")
    list(APPEND names ${name})
  endforeach()
  list(REMOVE_DUPLICATES names)
  set(read)
  foreach(name ${names})
    list(APPEND read ${PROJECT_SOURCE_DIR}/codecs/${name}.codec)
    foreach(level ${TITHE_LEVELS})
      list(APPEND made ${folder}/${name}_${level}.cc)
      # As for a program that is compiled where it runs (src/lang/cpp/cpp_compiler.cc).
      set_source_files_properties(${folder}/${name}_${level}.cc PROPERTIES COMPILE_OPTIONS
        "-w;-O2;${march_${level}};-fno-math-errno;-fno-trapping-math;-fwrapv;-fno-strict-aliasing")
    endforeach()
  endforeach()
  file(MAKE_DIRECTORY ${folder})
  add_custom_command(OUTPUT ${folder}/built_in.cc ${made}
    COMMAND ${CMAKE_COMMAND} -E env TITHE_CXX=none $<TARGET_FILE:emit_programs> ${PROJECT_SOURCE_DIR}/codecs ${folder} ${TITHE_LEVELS}
    DEPENDS emit_programs ${read} VERBATIM COMMENT "C++ of the programs of codecs/")
endif()
add_library(tithe_programs OBJECT ${folder}/built_in.cc ${made})
target_include_directories(tithe_programs PRIVATE include src)
target_link_libraries(tithe_programs PRIVATE tithe_flags)
