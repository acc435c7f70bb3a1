cmake_minimum_required(VERSION 3.25)
# Compiles each public header alone, as its first reader would: all as C++20, c.h and export.h as C11 too.
# Run as: cmake -DROOT=<repo> -DWORK=<dir> -DCXX=<compiler> -DCC=<compiler> -P cmake/check_headers.cmake
set(warnings -Wall -Wextra -Wconversion -Wpedantic -Werror -fsyntax-only -I${ROOT}/include)
set(c_headers c.h export.h)

function(compile_alone header compiler standard ending)
  set(source ${WORK}/alone_${header}.${ending})
  file(WRITE ${source} "#include \"shardcomm/${header}\"\n#include \"shardcomm/${header}\"\nint main(void) { return 0; }\n")
  execute_process(COMMAND ${compiler} -std=${standard} ${warnings} ${source}
    RESULT_VARIABLE code OUTPUT_VARIABLE output ERROR_VARIABLE output)
  if(NOT code EQUAL 0)
    message(SEND_ERROR "shardcomm/${header} does not compile alone as ${standard}:\n${output}")
  endif()
endfunction()

file(GLOB headers RELATIVE ${ROOT}/include/shardcomm ${ROOT}/include/shardcomm/*.h)
if(NOT headers)
  message(FATAL_ERROR "no headers in ${ROOT}/include/shardcomm")
endif()
foreach(header IN LISTS headers)
  compile_alone(${header} ${CXX} c++20 cc)
  if(header IN_LIST c_headers)
    compile_alone(${header} ${CC} c11 c)
  endif()
endforeach()
list(LENGTH headers count)
message(STATUS "headers: ${count} compile alone")
