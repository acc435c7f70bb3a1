# Every package the build uses, in one place. Required ones fail here by name; optional ones are AUTO, ON or OFF.
find_package(Threads REQUIRED)
find_package(PkgConfig REQUIRED)
find_package(spdlog REQUIRED)           # logging; brings fmt
find_package(fmt REQUIRED)
find_package(nlohmann_json REQUIRED)    # checkpoint manifests, logs
find_package(OpenSSL REQUIRED COMPONENTS Crypto)   # HMAC-SHA-256 of the job secret
pkg_check_modules(hwloc REQUIRED IMPORTED_TARGET hwloc)
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
