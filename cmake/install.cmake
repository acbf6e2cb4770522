# What `cmake --install BUILD --prefix P` puts where:
#
#   bin/pare                    the program
#   share/man/man1              pare.1 and a page for each command
#   share/bash-completion/completions/pare, share/zsh/site-functions/_pare, share/fish/vendor_completions.d/pare.fish
#   lib/pare/pare_cuda.so       the GPU module, where the build made one (engine/build/backend.cpp looks there)
#   lib/libpare.so              with PARE_SDK: everything below cli as one shared library
#   include/pare/               with PARE_SDK: its headers, by the names that the tree uses
#   lib/cmake/pare/             with PARE_SDK: find_package(pare) gives the target pare::pare
#
# The prefix may be moved afterwards: nothing in it knows its path. scripts/package makes a tarball of one.
include(GNUInstallDirs)
include(CMakePackageConfigHelpers)
find_package(nlohmann_json REQUIRED)

# Libraries of the system that scripts/package puts into lib/pare are found from there, theirs too: hence DT_RPATH, which
# counts for the whole tree of libraries, and not DT_RUNPATH, which counts for one.
set(_pare_private ${CMAKE_INSTALL_LIBDIR}/pare)
file(RELATIVE_PATH _pare_up /p/bin /p/${_pare_private})
set_target_properties(pare PROPERTIES INSTALL_RPATH "$ORIGIN/${_pare_up}")
target_link_options(pare PRIVATE -Wl,--disable-new-dtags)
install(TARGETS pare RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
if(TARGET pare_cuda)
  install(TARGETS pare_cuda LIBRARY DESTINATION ${_pare_private})
endif()

# The program writes its own manual and completion scripts; they have no part in its build.
set(_pare_share ${PROJECT_BINARY_DIR}/share)
install(CODE "
  execute_process(COMMAND \"$<TARGET_FILE:pare>\" man \"${_pare_share}/man1\" --quiet OUTPUT_QUIET COMMAND_ERROR_IS_FATAL ANY)
  foreach(_shell bash zsh fish)
    execute_process(COMMAND \"$<TARGET_FILE:pare>\" completion \${_shell} OUTPUT_FILE \"${_pare_share}/completion.\${_shell}\"
                    COMMAND_ERROR_IS_FATAL ANY)
  endforeach()")
install(DIRECTORY ${_pare_share}/man1 DESTINATION ${CMAKE_INSTALL_MANDIR})
install(FILES ${_pare_share}/completion.bash DESTINATION ${CMAKE_INSTALL_DATADIR}/bash-completion/completions RENAME pare)
install(FILES ${_pare_share}/completion.zsh DESTINATION ${CMAKE_INSTALL_DATADIR}/zsh/site-functions RENAME _pare)
install(FILES ${_pare_share}/completion.fish DESTINATION ${CMAKE_INSTALL_DATADIR}/fish/vendor_completions.d RENAME pare.fish)

if(NOT PARE_SDK)
  return()
endif()
# One shared library of all archives whole: operators and formats register themselves, so each object counts.
set(_pare_archives pare_recipes pare_quant pare_eval pare_calib pare_datasets pare_graphsurgeon pare_cuda_source
    pare_build pare_run pare_ops pare_ir pare_numeric pare_base)
file(WRITE ${PROJECT_BINARY_DIR}/sdk.cpp "// Everything of this library comes from archives.\n")
add_library(pare_sdk SHARED ${PROJECT_BINARY_DIR}/sdk.cpp)
set(_pare_whole -Wl,--whole-archive)
foreach(_archive ${_pare_archives})
  list(APPEND _pare_whole $<TARGET_FILE:${_archive}>)
endforeach()
target_link_libraries(pare_sdk PRIVATE ${_pare_whole} -Wl,--no-whole-archive pare_recipes pare_cuda_source)
add_dependencies(pare_sdk ${_pare_archives})
set_target_properties(pare_sdk PROPERTIES OUTPUT_NAME pare EXPORT_NAME pare VERSION ${PROJECT_VERSION}
  SOVERSION ${PROJECT_VERSION_MAJOR}.${PROJECT_VERSION_MINOR} INSTALL_RPATH "$ORIGIN/pare")
target_link_options(pare_sdk PRIVATE -Wl,--disable-new-dtags $<$<CONFIG:Release>:-s>)
target_compile_features(pare_sdk INTERFACE cxx_std_20)
target_include_directories(pare_sdk INTERFACE $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}/pare>)
target_link_libraries(pare_sdk INTERFACE fmt::fmt nlohmann_json::nlohmann_json Threads::Threads)

install(TARGETS pare_sdk EXPORT pare LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR})
install(DIRECTORY engine graphsurgeon datasets calib quant eval recipes DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/pare
        FILES_MATCHING PATTERN "*.h" PATTERN "cuda" EXCLUDE)
install(EXPORT pare NAMESPACE pare:: DESTINATION ${CMAKE_INSTALL_LIBDIR}/cmake/pare FILE pareTargets.cmake)
file(WRITE ${PROJECT_BINARY_DIR}/pareConfig.cmake [[
include(CMakeFindDependencyMacro)
find_dependency(Threads)
find_dependency(fmt)
find_dependency(nlohmann_json)
include(${CMAKE_CURRENT_LIST_DIR}/pareTargets.cmake)
]])
write_basic_package_version_file(${PROJECT_BINARY_DIR}/pareConfigVersion.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/pareConfig.cmake ${PROJECT_BINARY_DIR}/pareConfigVersion.cmake
        DESTINATION ${CMAKE_INSTALL_LIBDIR}/cmake/pare)
