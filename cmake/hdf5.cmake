# PARE_HDF5: the HDF5 C library for target_link_libraries; HDF5_C_INCLUDE_DIRS its headers.
#
# Debian's shared library brings libcurl (for files in S3) and with it 25 more libraries, TLS, Kerberos and LDAP among
# them: half of the time that `pare --help` took. Programs therefore link the static library, with
# datasets/hdf5_no_network.cpp in the place of libcurl; pare reads no files from S3. Shared libraries (PARE_SDK), and
# machines without libhdf5.a, take the shared one.
find_package(HDF5 REQUIRED COMPONENTS C)
set(_static "")
set(_others "")
foreach(_library IN LISTS HDF5_C_LIBRARIES)
  string(REGEX REPLACE "\\.so$" ".a" _archive "${_library}")
  if(_library MATCHES "/libhdf5[^/]*\\.so$" AND EXISTS "${_archive}")
    set(_static "${_archive}")
  elseif(NOT _library MATCHES "/libcurl")
    list(APPEND _others "${_library}")
  endif()
endforeach()
# FindHDF5 learns what else the archive needs from h5cc, a script that fails where the build folder has a space in its
# path: compression is then looked for here.
foreach(_name sz z crypto)
  if(_static AND NOT "${_others}" MATCHES "/lib${_name}\\.")
    find_library(PARE_HDF5_${_name} ${_name})
    if(PARE_HDF5_${_name})
      list(APPEND _others "${PARE_HDF5_${_name}}")
    endif()
  endif()
endforeach()
if(_static AND NOT PARE_FUZZ)
  add_library(pare_no_network STATIC datasets/hdf5_no_network.cpp)
  get_filename_component(_name "${_static}" NAME)
  set(_program $<STREQUAL:$<TARGET_PROPERTY:TYPE>,EXECUTABLE>)
  add_library(pare_hdf5 INTERFACE)
  target_link_libraries(pare_hdf5 INTERFACE "$<${_program}:${_static}>" "$<${_program}:pare_no_network>" "$<${_program}:${_others}>"
    "$<$<NOT:${_program}>:${HDF5_C_LIBRARIES}>")
  # The GPU module and what it opens must not find these symbols in the program.
  target_link_options(pare_hdf5 INTERFACE "$<${_program}:-Wl,--exclude-libs,${_name}>")
  set(PARE_HDF5 pare_hdf5)
  # scripts/package adds the licences of what is inside of the program.
  file(WRITE ${PROJECT_BINARY_DIR}/static-libraries.txt "${_static}\n")
else()
  set(PARE_HDF5 ${HDF5_C_LIBRARIES})
  file(WRITE ${PROJECT_BINARY_DIR}/static-libraries.txt "")
endif()
