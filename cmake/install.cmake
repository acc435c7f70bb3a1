# A normal prefix: lib/, include/shardcomm/, bin/shardcomm, the CMake package and the pkg-config file. Both may be moved
# together with the prefix.
include(CMakePackageConfigHelpers)
set(shardcomm_package_dir ${CMAKE_INSTALL_LIBDIR}/cmake/shardcomm)
set(shardcomm_pc_dir ${CMAKE_INSTALL_LIBDIR}/pkgconfig)

install(TARGETS shardcomm EXPORT shardcommTargets LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR})
install(DIRECTORY ${PROJECT_SOURCE_DIR}/include/shardcomm DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}
  FILES_MATCHING PATTERN "*.h")
install(EXPORT shardcommTargets NAMESPACE shardcomm:: DESTINATION ${shardcomm_package_dir})

configure_package_config_file(${PROJECT_SOURCE_DIR}/cmake/shardcommConfig.cmake.in
  ${PROJECT_BINARY_DIR}/shardcommConfig.cmake INSTALL_DESTINATION ${shardcomm_package_dir})
write_basic_package_version_file(${PROJECT_BINARY_DIR}/shardcommConfigVersion.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/shardcommConfig.cmake ${PROJECT_BINARY_DIR}/shardcommConfigVersion.cmake
  DESTINATION ${shardcomm_package_dir})

file(RELATIVE_PATH SHARDCOMM_PC_TO_PREFIX /prefix/${shardcomm_pc_dir} /prefix)
string(REGEX REPLACE "/$" "" SHARDCOMM_PC_TO_PREFIX "${SHARDCOMM_PC_TO_PREFIX}")
configure_file(${PROJECT_SOURCE_DIR}/cmake/shardcomm.pc.in ${PROJECT_BINARY_DIR}/shardcomm.pc @ONLY)
install(FILES ${PROJECT_BINARY_DIR}/shardcomm.pc DESTINATION ${shardcomm_pc_dir})
install(FILES ${PROJECT_SOURCE_DIR}/LICENSE DESTINATION ${CMAKE_INSTALL_DOCDIR})

if(TARGET shardcomm_command)
  file(RELATIVE_PATH bin_to_lib /prefix/${CMAKE_INSTALL_BINDIR} /prefix/${CMAKE_INSTALL_LIBDIR})
  set_target_properties(shardcomm_command PROPERTIES INSTALL_RPATH "$ORIGIN/${bin_to_lib}")
  install(TARGETS shardcomm_command RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
endif()
