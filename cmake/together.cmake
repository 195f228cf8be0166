# SPDX-License-Identifier: Apache-2.0
# Compiles several files of a folder as one source, which takes 0.3 to 0.6 of the time, because they share headers. Names
# with internal linkage must differ within a folder. CMake's UNITY_BUILD writes absolute paths, which a compiler cache
# cannot share between checkouts.
# TITHE_TOGETHER=OFF compiles each file alone: for work on a few files, and for tools that read compile_commands.json.
option(TITHE_TOGETHER "Compile several files of a folder at a time" ON)

# Folders and tests whose files define the same names; each file is compiled alone.
set(TITHE_COMPILED_ALONE "/src/strategy/|/planner/policy_|/sim/world.*_test|/session_(servers|schedule|stats|checksum|hosts)_test")
string(APPEND TITHE_COMPILED_ALONE "|/(step_advice|device|tag|phases|prelude_cuda)_test")

# Replaces sources of the list `name` by generated sources that include them. `base` is an include folder of the target,
# and `label` distinguishes targets. Further arguments are folders of `base`; only their files are replaced. Files with
# compile definitions of their own, and files that are compiled once per vector target, stay.
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
    if(NOT inside OR own OR targets OR path MATCHES "${TITHE_COMPILED_ALONE}")
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
    # Batches of nearly equal size: seven files are three and four.
    list(LENGTH in_${folder} count)
    math(EXPR batches "(${count} + ${most} - 1) / ${most}")
    math(EXPR last "${batches} - 1")
    foreach(batch RANGE ${last})
      math(EXPR from "${count} * ${batch} / ${batches}")
      math(EXPR to "${count} * (${batch} + 1) / ${batches} - ${from}")
      list(SUBLIST in_${folder} ${from} ${to} files)
      list(TRANSFORM files REPLACE "(.+)" "#include \"\\1\"\n")
      string(JOIN "" text ${files})
      # Below the folder in which compilers run, both for tithe alone and as a part: a cache sees one relative path.
      set(one ${CMAKE_BINARY_DIR}/together/${folder}_${batch}.cc)
      file(CONFIGURE OUTPUT ${one} CONTENT "${text}" @ONLY)
      list(APPEND left ${one})
    endforeach()
  endforeach()
  set(${name} ${left} PARENT_SCOPE)
endfunction()
