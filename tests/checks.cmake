# Checks of the tree itself, as tests. UNLESS: why this build has nothing to check; empty where it has.
function(shardcomm_check name)
  cmake_parse_arguments(PARSE_ARGV 1 arg "" "UNLESS" "DEFINE")
  list(TRANSFORM arg_DEFINE PREPEND "-D")
  set(command ${CMAKE_COMMAND} ${arg_DEFINE} -P ${PROJECT_SOURCE_DIR}/cmake/check_${name}.cmake)
  if(arg_UNLESS)
    set(command ${CMAKE_COMMAND} -E echo "${name}: skipped: ${arg_UNLESS}")
  endif()
  add_test(NAME ${name} COMMAND ${command})
  set_tests_properties(${name} PROPERTIES TIMEOUT 120 LABELS tree SKIP_REGULAR_EXPRESSION ": skipped: ")
endfunction()

set(root ROOT=${PROJECT_SOURCE_DIR})
shardcomm_check(layers DEFINE ${root} OBJECTS=${PROJECT_BINARY_DIR}/folder_objects.cmake NM=${CMAKE_NM})
shardcomm_check(layers_test DEFINE WORK=${CMAKE_CURRENT_BINARY_DIR}/layers_test CXX=${CMAKE_CXX_COMPILER} NM=${CMAKE_NM})
shardcomm_check(headers DEFINE ${root} WORK=${CMAKE_CURRENT_BINARY_DIR}/headers CXX=${CMAKE_CXX_COMPILER} CC=${CMAKE_C_COMPILER})
shardcomm_check(format DEFINE ${root})
shardcomm_check(python_free DEFINE ${root})

# The C ABI against tests/c_api/abi.txt and what is frozen; shardcomm_abi writes that file anew.
set(not_here "")
if(CMAKE_CROSSCOMPILING OR NOT CMAKE_SIZEOF_VOID_P EQUAL 8)
  set(not_here "the layouts are those of a 64-bit machine, printed by a program that runs here")
endif()
set(abi ${root} WORK=${CMAKE_CURRENT_BINARY_DIR}/abi CC=${CMAKE_C_COMPILER})
shardcomm_check(abi UNLESS "${not_here}" DEFINE ${abi} LIBRARY=$<TARGET_FILE:shardcomm> NM=${CMAKE_NM})
shardcomm_check(abi_test UNLESS "${not_here}" DEFINE ${root} WORK=${CMAKE_CURRENT_BINARY_DIR}/abi_test CC=${CMAKE_C_COMPILER}
  NM=${CMAKE_NM})
list(TRANSFORM abi PREPEND "-D")
add_custom_target(shardcomm_abi VERBATIM
  COMMAND ${CMAKE_COMMAND} ${abi} -DUPDATE=1 -P ${PROJECT_SOURCE_DIR}/cmake/check_abi.cmake)

# Compiles the library a second time: about half a minute of two cores, later only what has changed.
set(not_here "")
if(NOT CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
  set(not_here "only GCC compares definitions across sources")
elseif(CMAKE_CXX_FLAGS MATCHES "-fsanitize" OR CMAKE_CROSSCOMPILING)
  set(not_here "the build without sanitizers, for this machine, checks it")
endif()
shardcomm_check(odr UNLESS "${not_here}" DEFINE ${root} WORK=${CMAKE_CURRENT_BINARY_DIR}/odr CC=${CMAKE_C_COMPILER}
  CXX=${CMAKE_CXX_COMPILER} LAUNCHER=${CMAKE_CXX_COMPILER_LAUNCHER})
set_tests_properties(odr PROPERTIES TIMEOUT 600)

# FLAGS carry a sanitizer over to the consumer, whose programs must load its runtime first.
shardcomm_check(consumer DEFINE ${root} BUILD=${PROJECT_BINARY_DIR} WORK=${CMAKE_CURRENT_BINARY_DIR}/consumer
  CXX=${CMAKE_CXX_COMPILER} CC=${CMAKE_C_COMPILER} FLAGS=${CMAKE_CXX_FLAGS})

# What the build needs of an x86-64 processor: by its instructions, and on one that has no more.
set(other_target "")
if(NOT CMAKE_SYSTEM_PROCESSOR MATCHES "^(x86_64|AMD64|amd64)$")
  set(other_target "built for ${CMAKE_SYSTEM_PROCESSOR}")
elseif(CMAKE_CXX_FLAGS MATCHES "-m(arch=|avx|bmi|fma|f16c|lzcnt|movbe|aes|pclmul|sha)")
  set(other_target "built for another processor: ${CMAKE_CXX_FLAGS}")
endif()
set(shipped $<TARGET_FILE:shardcomm>)
if(SHARDCOMM_BUILD_TOOLS)
  string(APPEND shipped ",$<TARGET_FILE:shardcomm_command>")
endif()
shardcomm_check(baseline UNLESS "${other_target}" DEFINE OBJDUMP=${CMAKE_OBJDUMP} FILES=${shipped})
if(CMAKE_CXX_FLAGS MATCHES "-fsanitize")
  set(other_target "qemu-user does not run sanitizers")
endif()
shardcomm_check(old_processor UNLESS "${other_target}" DEFINE
  PROGRAMS=$<TARGET_FILE:kernels_test>,$<TARGET_FILE:float_formats_test>,$<TARGET_FILE:communicator_test>)

add_test(NAME mutations COMMAND ${PROJECT_SOURCE_DIR}/tests/mutations/check.sh)
set_tests_properties(mutations PROPERTIES TIMEOUT 120 LABELS tree)
