# Every package the build uses, in one place. Required ones fail here by name; optional backends are AUTO, ON or OFF.
find_package(Threads REQUIRED)
find_package(PkgConfig REQUIRED)
find_package(spdlog REQUIRED)           # logging; brings fmt
find_package(fmt REQUIRED)
find_package(nlohmann_json REQUIRED)    # checkpoint manifests, logs
find_package(OpenSSL REQUIRED COMPONENTS Crypto)   # HMAC-SHA-256 of the job secret
pkg_check_modules(hwloc REQUIRED IMPORTED_TARGET hwloc>=2.5)   # which cores share a cache or a memory
pkg_check_modules(xxhash REQUIRED IMPORTED_TARGET libxxhash)
if(SHARDCOMM_BUILD_TOOLS)
  find_package(CLI11 REQUIRED)
  find_package(dnnl REQUIRED)           # matrix products of the reference trainer
endif()
if(SHARDCOMM_BUILD_TESTS)
  find_package(GTest REQUIRED)
endif()
if(SHARDCOMM_BUILD_BENCH)
  find_package(benchmark REQUIRED)
endif()

# Declares SHARDCOMM_WITH_<name>. AUTO takes a backend when this version has it and its headers are found; ON insists.
# BUILT names the backends that src/ has: none yet, so AUTO says so and ON stops here.
function(shardcomm_backend name what)
  cmake_parse_arguments(arg "BUILT" "" "" ${ARGN})
  set(variable SHARDCOMM_WITH_${name})
  set(${variable} AUTO CACHE STRING "${what}: AUTO, ON or OFF")
  set_property(CACHE ${variable} PROPERTY STRINGS AUTO ON OFF)
  set(value "${${variable}}")
  if(NOT value MATCHES "^(AUTO|ON|OFF)$")
    message(FATAL_ERROR "${variable}=${value} is not one of AUTO, ON, OFF")
  endif()
  if(value STREQUAL "ON" AND NOT arg_BUILT)
    message(FATAL_ERROR "${variable}=ON: shardcomm ${PROJECT_VERSION} has no ${what}; use AUTO or OFF")
  endif()
  set(state "no (OFF)")
  if(arg_BUILT AND NOT value STREQUAL "OFF")
    set(state "yes")
  elseif(value STREQUAL "AUTO")
    set(state "no (not in this version)")
  endif()
  message(STATUS "  ${what}: ${state}")
endfunction()

message(STATUS "shardcomm ${PROJECT_VERSION}, ${CMAKE_BUILD_TYPE}, transports:")
message(STATUS "  shared memory (shm): yes")
shardcomm_backend(CUDA "CUDA peers (p2p)")
shardcomm_backend(VERBS "InfiniBand verbs (ib)")
shardcomm_backend(UCX "UCX (ucx)")
shardcomm_backend(NCCL "NCCL (nccl)")
