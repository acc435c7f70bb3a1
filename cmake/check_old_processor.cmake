cmake_minimum_required(VERSION 3.25)
# Runs programs on a processor of x86-64-v2 (Nehalem), which qemu-user emulates: it has no AVX, and refuses what needs it.
# Where a program says which host path it has chosen, it must be the portable one.
# Run as: cmake -DPROGRAMS=<a,b> -P cmake/check_old_processor.cmake
find_program(QEMU NAMES qemu-x86_64 qemu-x86_64-static)
if(NOT QEMU)
  message(STATUS "old_processor: skipped: qemu-x86_64 is not installed (Debian: qemu-user)")
  return()
endif()
string(REPLACE "," ";" PROGRAMS "${PROGRAMS}")
set(quick --gtest_filter=-*BeyondTheCaches*:*EveryOpCountAndAlignment*:*EveryAlignment:*Midpoint*:*AThousand*)
foreach(program IN LISTS PROGRAMS)
  get_filename_component(name ${program} NAME)
  execute_process(COMMAND ${QEMU} -cpu Nehalem ${program} ${quick}
    OUTPUT_VARIABLE output ERROR_VARIABLE output RESULT_VARIABLE code)
  if(NOT code EQUAL 0)
    message(FATAL_ERROR "old_processor: ${name}: ${code}\n${output}")
  endif()
  string(REGEX MATCH "host path: [a-z0-9]+" path "${output}")
  if(NOT path MATCHES "portable" AND (path OR name STREQUAL "kernels_test"))
    message(FATAL_ERROR "old_processor: ${name}: ${path}")
  endif()
  message(STATUS "old_processor: ${name}: passed; ${path}")
endforeach()
