cmake_minimum_required(VERSION 3.25)
# Fails when two sources of the library define one name differently (the One Definition Rule), which no compiler sees in
# one source alone. GCC compares all definitions when it merges objects compiled with -flto; the merge generates no code.
# Run as: cmake -DROOT=<repo> -DWORK=<dir> -DCC=<gcc> -DCXX=<g++> -DLAUNCHER=<of the compiler, or empty> -P cmake/check_odr.cmake
set(flags -O1 -flto -Wodr -Werror=odr)
set(merge -r -flinker-output=rel)

function(run)
  execute_process(COMMAND ${ARGN} RESULT_VARIABLE code OUTPUT_VARIABLE output ERROR_VARIABLE output)
  set(code ${code} PARENT_SCOPE)
  set(output "${output}" PARENT_SCOPE)
endfunction()

# The check itself can fail: two definitions, the second of which is behind a pointer in the other's source.
file(MAKE_DIRECTORY ${WORK}/self)
file(WRITE ${WORK}/self/a.cc "#include <memory>\nnamespace n { struct T { int a; }; struct Owner { std::shared_ptr<T> t; }; int f(const Owner& o) { return o.t->a; } }\n")
file(WRITE ${WORK}/self/b.cc "#include <memory>\nnamespace n { struct T { double b; char c; }; struct Owner { std::shared_ptr<T> t; }; double g(const Owner& o) { return o.t->b; } }\n")
run(${CXX} ${flags} ${merge} ${WORK}/self/a.cc ${WORK}/self/b.cc -o ${WORK}/self/merged.o)
if(code EQUAL 0 OR NOT output MATCHES "violates the C\\+\\+ One Definition Rule")
  message(FATAL_ERROR "odr: two definitions of one type go unseen: ${code}\n${output}")
endif()

list(JOIN flags " " flags)
run(${CMAKE_COMMAND} -G Ninja -S ${ROOT} -B ${WORK}/build -DCMAKE_BUILD_TYPE=None -DCMAKE_C_COMPILER=${CC}
  -DCMAKE_CXX_COMPILER=${CXX} -DCMAKE_C_COMPILER_LAUNCHER=${LAUNCHER} -DCMAKE_CXX_COMPILER_LAUNCHER=${LAUNCHER}
  "-DCMAKE_CXX_FLAGS=${flags}" -DSHARDCOMM_BUILD_TESTS=OFF -DSHARDCOMM_BUILD_TOOLS=OFF -DSHARDCOMM_BUILD_BENCH=OFF)
if(code EQUAL 0)
  run(${CMAKE_COMMAND} --build ${WORK}/build --target shardcomm_merged)
endif()
if(NOT code EQUAL 0)
  message(FATAL_ERROR "odr:\n${output}")
endif()
message(STATUS "odr: one definition of each type")
