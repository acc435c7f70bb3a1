# One function per kind of target, so that warnings and include rules are said once.

# What all our code is compiled with. Private: nothing here reaches users of the library.
add_library(shardcomm_build_flags INTERFACE)
target_compile_options(shardcomm_build_flags INTERFACE
  -Wall -Wextra -Werror
  $<$<COMPILE_LANGUAGE:C,CXX>:-Wconversion>)
target_include_directories(shardcomm_build_flags INTERFACE ${PROJECT_SOURCE_DIR}/include)

# Sources of this directory that run now and then and are full of JSON or formatting templates, whose optimization would
# take most of a build.
function(shardcomm_rarely_run)
  set_source_files_properties(${ARGN} PROPERTIES COMPILE_OPTIONS "-O1")
endfunction()

# What nearly every source of src/ includes, parsed once: the standard library is most of what a build reads. Sources
# still include what they use.
file(GENERATE OUTPUT ${PROJECT_BINARY_DIR}/precompiled.cc CONTENT "")
add_library(shardcomm_precompiled OBJECT ${PROJECT_BINARY_DIR}/precompiled.cc)
target_link_libraries(shardcomm_precompiled PRIVATE shardcomm_build_flags fmt::fmt)
target_precompile_headers(shardcomm_precompiled PRIVATE
  <atomic> <chrono> <functional> <map> <memory> <mutex> <optional> <span> <string> <string_view> <vector> <fmt/format.h>)

# A folder of src/ as an object library. USES names the external libraries (targets) it compiles against.
function(shardcomm_folder name)
  cmake_parse_arguments(arg "" "" "SOURCES;USES" ${ARGN})
  if(NOT arg_SOURCES)  # a room without furniture yet
    return()
  endif()
  add_library(shardcomm_${name} OBJECT ${arg_SOURCES})
  target_include_directories(shardcomm_${name} PRIVATE ${PROJECT_SOURCE_DIR}/src)
  target_link_libraries(shardcomm_${name} PRIVATE shardcomm_build_flags ${arg_USES})
  if("fmt::fmt" IN_LIST arg_USES)
    target_precompile_headers(shardcomm_${name} REUSE_FROM shardcomm_precompiled)
  endif()
  set_property(GLOBAL APPEND PROPERTY SHARDCOMM_FOLDERS shardcomm_${name})
  set_property(GLOBAL APPEND PROPERTY SHARDCOMM_USES ${arg_USES})
endfunction()

# A GoogleTest program. SOURCES default to NAME.cc, without the directory's name in front: in collectives/,
# collectives_matrix_test is made of matrix_test.cc. FOLDERS links the objects of those folders (to test what is not
# exported); without FOLDERS the test links the shared library, as a user would. LABELS: `slow` keeps a test out of the
# default run; `asan`, `tsan` and `emulated` take it into the target shardcomm_tests_<label>, of which the default run also
# builds and runs tsan's.
function(shardcomm_test name)
  cmake_parse_arguments(arg "" "TIMEOUT" "SOURCES;FOLDERS;USES;LABELS" ${ARGN})
  if(NOT arg_SOURCES)
    get_filename_component(subject ${CMAKE_CURRENT_SOURCE_DIR} NAME)
    string(REGEX REPLACE "^${subject}_(.+_test)$" "\\1" arg_SOURCES ${name})
    string(APPEND arg_SOURCES .cc)
  endif()
  if(NOT arg_TIMEOUT)
    set(arg_TIMEOUT 120)
  endif()
  if(CMAKE_CXX_FLAGS MATCHES "-fsanitize" OR CMAKE_CROSSCOMPILING_EMULATOR)
    math(EXPR arg_TIMEOUT "${arg_TIMEOUT} * 5")
  endif()
  add_executable(${name} ${arg_SOURCES})
  target_include_directories(${name} PRIVATE ${PROJECT_SOURCE_DIR}/src ${PROJECT_SOURCE_DIR})
  target_link_libraries(${name} PRIVATE shardcomm_build_flags GTest::gtest_main Threads::Threads ${arg_USES})
  if(arg_FOLDERS)
    foreach(folder IN LISTS arg_FOLDERS)
      target_link_libraries(${name} PRIVATE shardcomm_${folder})
    endforeach()
    get_property(uses GLOBAL PROPERTY SHARDCOMM_USES)
    target_link_libraries(${name} PRIVATE ${uses})
  else()
    target_link_libraries(${name} PRIVATE shardcomm)
  endif()
  add_test(NAME ${name} COMMAND ${name})
  set_tests_properties(${name} PROPERTIES TIMEOUT ${arg_TIMEOUT} LABELS "${arg_LABELS}")
  foreach(label IN ITEMS asan tsan emulated)
    if(label IN_LIST arg_LABELS)
      add_dependencies(shardcomm_tests_${label} ${name})
    endif()
  endforeach()
endfunction()
