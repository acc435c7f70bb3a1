cmake_minimum_required(VERSION 3.25)
# Shows that check_abi.cmake notices each kind of change, and names it, in copies of c.h with one change each.
# Run as: cmake -DROOT=<repo> -DWORK=<dir> -DCC=<compiler> -DNM=<nm> -P cmake/check_abi_test.cmake
file(READ ${ROOT}/include/shardcomm/c.h header)

# WHAT is replaced by BY in c.h; `expected` is what the check must say, or OK. Further arguments go to the check.
function(expect_abi what by expected)
  set(tree ${WORK}/tree)
  file(REMOVE_RECURSE ${tree})
  file(COPY ${ROOT}/include/shardcomm/export.h DESTINATION ${tree}/include/shardcomm)
  file(COPY ${ROOT}/tests/c_api/abi.txt ${ROOT}/tests/c_api/frozen DESTINATION ${tree}/tests/c_api)
  string(FIND "${header}" "${what}" found)
  if(found EQUAL -1)
    message(FATAL_ERROR "abi_test: c.h no longer has '${what}'")
  endif()
  string(REPLACE "${what}" "${by}" changed "${header}")
  file(WRITE ${tree}/include/shardcomm/c.h "${changed}")
  execute_process(COMMAND ${CMAKE_COMMAND} -DROOT=${tree} -DWORK=${WORK}/work -DCC=${CC} ${ARGN}
    -P ${ROOT}/cmake/check_abi.cmake RESULT_VARIABLE code OUTPUT_VARIABLE output ERROR_VARIABLE output)
  string(REGEX REPLACE "[ \n]+" " " output "${output}")
  if(expected STREQUAL "OK")
    if(NOT code EQUAL 0)
      message(SEND_ERROR "abi_test: '${by}' is refused: ${output}")
    endif()
  elseif(code EQUAL 0 OR NOT output MATCHES "${expected}")
    message(SEND_ERROR "abi_test: '${by}': expected '${expected}', got ${code}: ${output}")
  endif()
endfunction()

set(device "int32_t device_index;")
set(view "int32_t gradient_dtype;\n} shardcomm_view;")
expect_abi("${device}" "${device}" OK)
expect_abi("${device}" "int64_t device_index;" "version 1.0 need, .*shardcomm_comm_params.device_index: 4 bytes at 20")
expect_abi("${device}" "int32_t device_number;" "gone or changed: member shardcomm_comm_params.device_index")
expect_abi("${view}" "int32_t gradient_dtype;\n  int64_t later;\n} shardcomm_view;" "without struct_size it must stay")
expect_abi("SHARDCOMM_SUM = 0" "SHARDCOMM_SUM = 9" "gone or changed: value SHARDCOMM_SUM 0")
expect_abi("shardcomm_comm_health(const" "shardcomm_comm_state(const" "version 1.0 need, .*shardcomm_comm_health")
expect_abi("(shardcomm_zero* zero, double* norm)" "(shardcomm_zero* zero, float* norm)" "gone or changed: .*shardcomm_zero_gradient_norm")
expect_abi("#define SHARDCOMM_ABI_MAJOR 1" "#define SHARDCOMM_ABI_MAJOR 2" "the major version is not that of 1.0")
expect_abi("SHARDCOMM_EXPORT uint32_t shardcomm_abi_version"
  "SHARDCOMM_EXPORT int32_t shardcomm_later(void);\nSHARDCOMM_EXPORT uint32_t shardcomm_abi_version"
  "new: function int32_t shardcomm_later.void.")

# A library that shows something of another's, and lacks what is declared.
file(WRITE ${WORK}/stranger.c "int stranger(void);\nint stranger(void) { return 1; }\n")
execute_process(COMMAND ${CC} -shared -fPIC ${WORK}/stranger.c -o ${WORK}/libstranger.so COMMAND_ERROR_IS_FATAL ANY)
set(library -DLIBRARY=${WORK}/libstranger.so -DNM=${NM})
expect_abi("${device}" "${device}" "neither shardcomm_\\* nor of namespace shardcomm: stranger" ${library})
expect_abi("${device}" "${device}" "shardcomm_comm_health is declared in c.h and not exported" ${library})
message(STATUS "abi_test: every kind of change is noticed")
