#include <algorithm>
#include <cstring>

#include "engine/base/error.h"
#include "engine/base/grain.h"
#include "engine/ops/movement/strided_copy.h"

namespace pare {
namespace {

struct Bytes16 {
  std::uint64_t low, high;
};

// Drops sizes of 1 and merges neighbours that both sides walk in one step.
StridedCopy merged(const StridedCopy& copy) {
  StridedCopy out;
  out.in_offset = copy.in_offset;
  out.out_offset = copy.out_offset;
  for (std::size_t i = 0; i < copy.dims.size(); ++i) {
    if (copy.dims[i] == 1) continue;
    const std::int64_t size = copy.dims[i], is = copy.in_strides[i], os = copy.out_strides[i];
    if (!out.dims.empty() && out.in_strides.back() == is * size && out.out_strides.back() == os * size) {
      out.dims.back() *= size;
      out.in_strides.back() = is;
      out.out_strides.back() = os;
      continue;
    }
    out.dims.push_back(size);
    out.in_strides.push_back(is);
    out.out_strides.push_back(os);
  }
  while (out.dims.size() < 2) {
    out.dims.insert(out.dims.begin(), 1);
    out.in_strides.insert(out.in_strides.begin(), 0);
    out.out_strides.insert(out.out_strides.begin(), 0);
  }
  return out;
}

// Rows of one of the common lengths: the compiler makes a few moves of each.
template <std::size_t kBytes, typename T>
void copy_fixed_rows(const T* in, std::int64_t in_row, T* out, std::int64_t out_row, std::int64_t rows) {
  for (std::int64_t r = 0; r < rows; ++r, in += in_row, out += out_row) std::memcpy(out, in, kBytes);
}

template <typename T>
void copy_row(const T* in, std::int64_t is, T* out, std::int64_t os, std::int64_t n) {
  if (is == 1 && os == 1) {
    std::memcpy(out, in, static_cast<std::size_t>(n) * sizeof(T));
  } else if (is == 0 && os == 1) {
    std::fill_n(out, n, *in);
  } else if (os == 1) {
    for (std::int64_t i = 0; i < n; ++i) out[i] = in[i * is];
  } else {
    for (std::int64_t i = 0; i < n; ++i) out[i * os] = in[i * is];
  }
}

template <typename T>
void copy_rows(const T* in, std::int64_t in_row, std::int64_t is, T* out, std::int64_t out_row,
               std::int64_t os, std::int64_t rows, std::int64_t n) {
  if (is == 1 && os == 1) {
    switch (static_cast<std::size_t>(n) * sizeof(T)) {
      case 64:
        return copy_fixed_rows<64>(in, in_row, out, out_row, rows);
      case 128:
        return copy_fixed_rows<128>(in, in_row, out, out_row, rows);
      case 256:
        return copy_fixed_rows<256>(in, in_row, out, out_row, rows);
      default:
        break;
    }
  }
  for (std::int64_t r = 0; r < rows; ++r) copy_row(in + r * in_row, is, out + r * out_row, os, n);
}

// rows x columns, the input contiguous along rows, the output along columns. Tiles of 16 x 16: both sides
// then touch whole cache lines.
template <typename T>
void copy_tiles(const T* in, std::int64_t in_column, T* out, std::int64_t out_row, std::int64_t rows,
                std::int64_t columns) {
  constexpr std::int64_t kTile = 16;
  for (std::int64_t r = 0; r < rows; r += kTile) {
    const std::int64_t height = std::min(kTile, rows - r);
    for (std::int64_t c = 0; c < columns; c += kTile) {
      const std::int64_t width = std::min(kTile, columns - c);
      if (height == kTile && width == kTile) {
        for (std::int64_t y = 0; y < kTile; ++y)
          for (std::int64_t x = 0; x < kTile; ++x)
            out[(r + y) * out_row + c + x] = in[(r + y) + (c + x) * in_column];
      } else {
        for (std::int64_t y = 0; y < height; ++y)
          for (std::int64_t x = 0; x < width; ++x)
            out[(r + y) * out_row + c + x] = in[(r + y) + (c + x) * in_column];
      }
    }
  }
}

// All axes but the last `inner`; body(in offset, out offset) for those numbered [begin, end).
template <typename Body>
void walk(const StridedCopy& copy, std::size_t inner, std::int64_t begin, std::int64_t end, Body body) {
  const std::size_t axes = copy.dims.size() - inner;
  Dims at(axes, 0);
  std::int64_t in = copy.in_offset, out = copy.out_offset, rest = begin;
  for (std::size_t i = axes; i-- > 0;) {
    at[i] = rest % copy.dims[i];
    rest /= copy.dims[i];
    in += at[i] * copy.in_strides[i];
    out += at[i] * copy.out_strides[i];
  }
  for (std::int64_t k = begin; k < end; ++k) {
    body(in, out);
    for (std::size_t i = axes; i-- > 0;) {
      in += copy.in_strides[i];
      out += copy.out_strides[i];
      if (++at[i] < copy.dims[i]) break;
      in -= at[i] * copy.in_strides[i];
      out -= at[i] * copy.out_strides[i];
      at[i] = 0;
    }
  }
}

// Moves the axis along which the input is contiguous beside the last one, when that makes tiles possible.
bool make_tiles(StridedCopy& copy) {
  const std::size_t last = copy.dims.size() - 1;
  if (copy.out_strides[last] != 1 || copy.in_strides[last] == 1 || copy.in_strides[last] == 0) return false;
  for (std::size_t i = last; i-- > 0;) {
    if (copy.in_strides[i] != 1 || copy.dims[i] < 4 || copy.dims[last] < 4) continue;
    const auto move = [&](Dims& dims) {
      std::rotate(dims.begin() + static_cast<std::ptrdiff_t>(i),
                  dims.begin() + static_cast<std::ptrdiff_t>(i) + 1,
                  dims.begin() + static_cast<std::ptrdiff_t>(last));
    };
    move(copy.dims);
    move(copy.in_strides);
    move(copy.out_strides);
    return true;
  }
  return false;
}

template <typename T>
void run_copy(StridedCopy copy, const T* in, T* out, ThreadPool& pool) {
  const bool tiles = make_tiles(copy);
  const std::size_t last = copy.dims.size() - 1;
  const std::int64_t rows = copy.dims[last - 1], columns = copy.dims[last], block = rows * columns;
  std::int64_t outer = 1;
  for (std::size_t i = 0; i + 2 < copy.dims.size(); ++i) outer *= copy.dims[i];
  if (outer * block == 0) return;
  const std::int64_t ir = copy.in_strides[last - 1], ic = copy.in_strides[last];
  const std::int64_t orow = copy.out_strides[last - 1], oc = copy.out_strides[last];
  // Rows [begin, end) of the block that starts at these places.
  const auto copy_block = [&](std::int64_t from, std::int64_t to, std::int64_t begin, std::int64_t end) {
    const T* source = in + from + begin * ir;
    T* target = out + to + begin * orow;
    if (tiles)
      copy_tiles(source, ic, target, orow, end - begin, columns);
    else
      copy_rows(source, ir, ic, target, orow, oc, end - begin, columns);
  };
  constexpr std::int64_t kPieceBytes = 65536;
  const auto bytes = static_cast<std::int64_t>(sizeof(T));
  if (outer == 1 && rows == 1)
    return pool.parallel_for(columns, kPieceBytes / bytes, [&](std::int64_t begin, std::int64_t end) {
      copy_row(in + copy.in_offset + begin * ic, ic, out + copy.out_offset + begin * oc, oc, end - begin);
    });
  if (outer == 1)  // one large block: cut it by rows
    return pool.parallel_for(rows, grain_for(kPieceBytes, columns * bytes, 16),
                             [&](std::int64_t begin, std::int64_t end) {
                               copy_block(copy.in_offset, copy.out_offset, begin, end);
                             });
  pool.parallel_for(outer, grain_for(kPieceBytes, block * bytes), [&](std::int64_t begin, std::int64_t end) {
    walk(copy, 2, begin, end, [&](std::int64_t from, std::int64_t to) { copy_block(from, to, 0, rows); });
  });
}

}  // namespace

void strided_copy(const StridedCopy& copy, int element_bytes, const void* in, void* out, ThreadPool& pool) {
  PARE_ASSERT(copy.dims.size() == copy.in_strides.size() && copy.dims.size() == copy.out_strides.size());
  const StridedCopy plan = merged(copy);
  const auto run = [&](auto zero) {
    using T = decltype(zero);
    run_copy(plan, static_cast<const T*>(in), static_cast<T*>(out), pool);
  };
  switch (element_bytes) {
    case 1:
      return run(std::uint8_t{});
    case 2:
      return run(std::uint16_t{});
    case 4:
      return run(std::uint32_t{});
    case 8:
      return run(std::uint64_t{});
    case 16:
      return run(Bytes16{});
    default:
      fail(ErrorCode::kInternal, "elements of {} bytes", element_bytes);
  }
}

void fill_elements(const void* value, int element_bytes, void* out, std::int64_t n) {
  const auto size = static_cast<std::size_t>(element_bytes);
  auto* to = static_cast<std::byte*>(out);
  if (n <= 0) return;
  // Doubling: each copy repeats all that was written before.
  std::memcpy(to, value, size);
  const std::size_t total = size * static_cast<std::size_t>(n);
  for (std::size_t done = size; done < total; done *= 2)
    std::memcpy(to + done, to, std::min(done, total - done));
}

}  // namespace pare
