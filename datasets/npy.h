// NumPy's .npy files, format versions 1 to 3.
//
// Read: bool, signed and unsigned integers of 8 to 64 bits, float16, float32, float64, little-endian (or one
// byte wide), C order; Fortran order is turned into C order (which copies). Refused, with what to do: big
// endian, object arrays (pickled: reading them would run code), strings, structured and complex types.
// Source: numpy/lib/format.py.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <string>

#include "engine/base/tensor.h"

namespace pare {

struct NpyHeader {
  DType dtype = DType::kUndefined;
  Dims dims;
  bool fortran_order = false;
  std::size_t data_offset = 0;  // where the elements start
};

// Parses and checks everything before the elements, and that all elements are there: nothing is believed
// that the file's length does not bear out. Bytes behind the elements are an error too. Errors are kBadFile
// (damaged) or kUnsupported (valid, but not read here); `what` names the file.
NpyHeader parse_npy_header(std::span<const std::byte> file, const std::string& what);

// A tensor over `file`, kept alive by `owner`; copied where the order must change or the elements are not
// aligned to their size.
Tensor npy_tensor(std::span<const std::byte> file, std::shared_ptr<const void> owner,
                  const std::string& what);

// Maps the file: pages come from the disk as they are used.
Tensor read_npy(const std::string& path);

// Version 1.0, C order, what numpy.save writes for the same array, written atomically. Error kUnsupported
// for types that NumPy has not (bfloat16, 8 bit and smaller floats, 4 bit integers).
void write_npy(const std::string& path, const TensorView& tensor);

}  // namespace pare
