# pare_simd_library(NAME SOURCES a_simd.cpp ... LIBS ...): compiles the files once for each instruction
# class (engine/ops/simd.h) and gathers the objects in the static library NAME.
function(pare_simd_library name)
  cmake_parse_arguments(T "" "" "LIBS;SOURCES" ${ARGN})
  set(options_0)
  set(options_1 -mavx2 -mfma -mf16c)
  set(options_2 -mavx512f -mavx512bw -mavx512dq -mavx512vl -mavx2 -mfma -mf16c)
  # GCC 12 takes its own _mm512_undefined_ps() for a mistake (GCC bug 105593).
  if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
    list(APPEND options_2 -Wno-maybe-uninitialized -Wno-uninitialized)
  endif()
  set(objects)
  foreach(level 0 1 2)
    add_library(${name}_${level} OBJECT ${T_SOURCES})
    target_link_libraries(${name}_${level} PRIVATE ${T_LIBS})
    target_compile_definitions(${name}_${level} PRIVATE PARE_SIMD_LEVEL=${level})
    target_compile_options(${name}_${level} PRIVATE ${options_${level}} -O3 -fno-math-errno)
    if(PARE_FUZZ)
      target_compile_options(${name}_${level} PRIVATE -O1)
    elseif(PARE_SANITIZE)
      # Reads and writes outside of buffers are looked for; with UBSan too, or with -O3, unrolled kernels take
      # 26 and 80 s an object instead of 14.
      target_compile_options(${name}_${level} PRIVATE -O1 -fno-sanitize=undefined)
    endif()
    list(APPEND objects $<TARGET_OBJECTS:${name}_${level}>)
  endforeach()
  add_library(${name} STATIC ${objects})
  target_link_libraries(${name} PUBLIC ${T_LIBS})
endfunction()
