# SPDX-License-Identifier: Apache-2.0
# Much of a file's compilation is headers that its neighbours read as well. So files of a folder are compiled several
# at a time, by a source that includes them, in 0.3 to 0.6 of the time (six groups of four): their names without linkage
# must differ. CMake's own way (UNITY_BUILD) writes absolute paths into these sources, and a compiler cache would then
# know nothing from another checkout.
# TITHE_TOGETHER=OFF compiles each by itself: for work on few files, and for tools that read compile_commands.json.
option(TITHE_TOGETHER "Compile several files of a folder at a time" ON)

# Files that say the same names: of each kind one, or tests with words of their own for the same. One sees own headers.
set(TITHE_ALIKE "/src/strategy/|/planner/policy_|/sim/world.*_test|/session_(servers|schedule|stats|checksum|hosts)_test")
string(APPEND TITHE_ALIKE "|/(step_advice|device|tag|phases|prelude_cuda)_test")

# Replaces sources of the list `name` by such that include them. `base` is a folder that the target includes from, and
# `label` tells targets apart. Folders of `base` behind it limit this to their files. Files that need definitions of
# their own, or are read once per vector target, stay.
function(tithe_together name label base)
  if(NOT TITHE_TOGETHER)
    return()
  endif()
  set(roots ${ARGN})
  list(TRANSFORM roots PREPEND ${base}/)
  if(NOT roots)
    set(roots ${base})
  endif()
  set(most 6)
  set(left)
  set(folders)
  foreach(source IN LISTS ${name})
    get_filename_component(path ${source} ABSOLUTE)
    set(inside OFF)
    foreach(root IN LISTS roots)
      cmake_path(IS_PREFIX root ${path} below)
      if(below)
        set(inside ON)
      endif()
    endforeach()
    get_source_file_property(own ${source} COMPILE_DEFINITIONS)
    file(STRINGS ${path} targets REGEX "foreach_target[.]h" LIMIT_COUNT 1)
    if(NOT inside OR own OR targets OR path MATCHES "${TITHE_ALIKE}")
      list(APPEND left ${source})
      continue()
    endif()
    cmake_path(RELATIVE_PATH path BASE_DIRECTORY ${base})
    cmake_path(GET path PARENT_PATH folder)
    string(REPLACE "/" "_" folder "${label}_${folder}")
    list(APPEND folders ${folder})
    list(APPEND in_${folder} ${path})
  endforeach()
  list(REMOVE_DUPLICATES folders)
  foreach(folder IN LISTS folders)
    # As many in each as can be equal: seven files are four and three.
    list(LENGTH in_${folder} count)
    math(EXPR batches "(${count} + ${most} - 1) / ${most}")
    math(EXPR last "${batches} - 1")
    foreach(batch RANGE ${last})
      math(EXPR from "${count} * ${batch} / ${batches}")
      math(EXPR to "${count} * (${batch} + 1) / ${batches} - ${from}")
      list(SUBLIST in_${folder} ${from} ${to} files)
      list(TRANSFORM files REPLACE "(.+)" "#include \"\\1\"\n")
      string(JOIN "" text ${files})
      # In front of where compilers run, in a build of its own as in one that has it as a part: one path for a cache.
      set(one ${CMAKE_BINARY_DIR}/together/${folder}_${batch}.cc)
      file(CONFIGURE OUTPUT ${one} CONTENT "${text}" @ONLY)
      list(APPEND left ${one})
    endforeach()
  endforeach()
  set(${name} ${left} PARENT_SCOPE)
endfunction()
