# Target pare_onnx_lib: the onnx C++ library (static), its headers and the system's protobuf.
#
# scripts/build-onnx builds it once and prints its prefix; scripts/build passes that on. A plain `cmake` finds the
# prefix in the same cache. Only graphsurgeon/onnx may link this target (tests/lint checks the includes).
set(PARE_ONNX_PREFIX "" CACHE PATH "install prefix of the onnx 1.22.0 C++ library (scripts/build-onnx prints it)")
set(_pare_onnx ${PARE_ONNX_PREFIX})
if(NOT _pare_onnx)
  if(DEFINED ENV{XDG_CACHE_HOME} AND NOT "$ENV{XDG_CACHE_HOME}" STREQUAL "")
    set(_pare_cache $ENV{XDG_CACHE_HOME}/pare)
  else()
    set(_pare_cache $ENV{HOME}/.cache/pare)
  endif()
  file(GLOB _pare_complete ${_pare_cache}/onnx-1.22.0-*/complete)
  if(_pare_complete)
    list(GET _pare_complete 0 _pare_complete)
    get_filename_component(_pare_onnx ${_pare_complete} DIRECTORY)
  endif()
endif()
if(NOT EXISTS ${_pare_onnx}/lib/libonnx.a)
  message(FATAL_ERROR "The onnx C++ library is not built yet (looked in '${_pare_onnx}'). "
                      "Run scripts/build, which builds it once, or scripts/build-onnx alone.")
endif()
message(STATUS "onnx C++ library: ${_pare_onnx}")

find_package(Protobuf REQUIRED)
add_library(pare_onnx_lib INTERFACE)
target_include_directories(pare_onnx_lib SYSTEM INTERFACE ${_pare_onnx}/include)
target_compile_definitions(pare_onnx_lib INTERFACE ONNX_NAMESPACE=onnx ONNX_ML=1)
target_link_libraries(pare_onnx_lib INTERFACE ${_pare_onnx}/lib/libonnx.a ${_pare_onnx}/lib/libonnx_proto.a
                                              protobuf::libprotobuf)
