#include "datasets/npy.h"

#include <charconv>
#include <cstring>
#include <string_view>

#include "engine/base/atomic_file.h"
#include "engine/base/byte_reader.h"
#include "engine/base/limits.h"
#include "engine/base/mapped_file.h"
#include "engine/base/reader_hints.h"

namespace pare {

namespace {

constexpr ReaderHints kHints = {"the file is cut short or damaged: write it again with numpy.save",
                                "write it with numpy.save, of bool, integers or floats"};
constexpr std::string_view kMagic = "\x93NUMPY";

struct TypeCode {
  const char* code;
  DType dtype;
};
constexpr TypeCode kTypes[] = {{"b1", DType::kBool}, {"i1", DType::kI8},  {"u1", DType::kU8},
                               {"i2", DType::kI16},  {"u2", DType::kU16}, {"i4", DType::kI32},
                               {"u4", DType::kU32},  {"i8", DType::kI64}, {"u8", DType::kU64},
                               {"f2", DType::kF16},  {"f4", DType::kF32}, {"f8", DType::kF64}};

DType dtype_of(std::string_view descr, const std::string& what) {
  if (descr.size() >= 2) {
    const char order = descr[0];
    const std::string_view code = descr.substr(1);
    for (const TypeCode& type : kTypes) {
      if (code != type.code) continue;
      if (order == '<' || (code[1] == '1' && (order == '|' || order == '>' || order == '=')))
        return type.dtype;
      throw make_error(ErrorCode::kUnsupported, "{}: elements are big-endian ('{}')", what, descr)
          .hint("save it with array.astype(array.dtype.newbyteorder('<'))");
    }
    if (code[0] == 'O')
      throw make_error(ErrorCode::kUnsupported, "{}: an array of Python objects, which only Python can read",
                       what)
          .hint("save a plain array: numpy.stack the samples, or use .npz with one array a key");
  }
  throw make_error(ErrorCode::kUnsupported, "{}: element type '{}' is not read", what, descr)
      .hint("bool, integers of 8 to 64 bits, float16, float32 and float64 are");
}

// The header is a Python dict literal with three keys; this reads just that much of Python.
class DictReader {
 public:
  DictReader(std::string_view text, const std::string& what) : text_(text), what_(what) {}

  NpyHeader read() {
    NpyHeader header;
    bool descr = false, order = false, shape = false;
    expect('{');
    while (!accept('}')) {
      const std::string_view key = quoted();
      expect(':');
      if (key == "descr" && !descr) {
        descr = true;
        if (peek() == '[')
          throw make_error(ErrorCode::kUnsupported, "{}: a structured array (fields with names)", what_)
              .hint("save each field as an array of its own in a .npz");
        header.dtype = dtype_of(quoted(), what_);
      } else if (key == "fortran_order" && !order) {
        order = true;
        header.fortran_order = boolean();
      } else if (key == "shape" && !shape) {
        shape = true;
        header.dims = tuple();
      } else {
        damaged("unknown or repeated key");
      }
      if (!accept(',')) {
        expect('}');
        break;
      }
    }
    skip_space();
    if (at_ != text_.size()) damaged("text behind the dict");
    if (!descr || !order || !shape) damaged("needs 'descr', 'fortran_order' and 'shape'");
    return header;
  }

 private:
  [[noreturn]] void damaged(const char* why) const {
    fail(ErrorCode::kBadFile, "{}: damaged .npy header: {} (at character {})", what_, why, at_);
  }
  void skip_space() {
    while (at_ < text_.size() && (text_[at_] == ' ' || text_[at_] == '\n' || text_[at_] == '\t')) ++at_;
  }
  char peek() {
    skip_space();
    return at_ < text_.size() ? text_[at_] : '\0';
  }
  bool accept(char c) {
    if (peek() != c) return false;
    ++at_;
    return true;
  }
  void expect(char c) {
    if (!accept(c)) damaged("not a dict of the form that NumPy writes");
  }
  std::string_view quoted() {
    const char quote = peek();
    if (quote != '\'' && quote != '"') damaged("expected a quoted word");
    const std::size_t end = text_.find(quote, at_ + 1);
    if (end == std::string_view::npos) damaged("a quote is not closed");
    const std::string_view word = text_.substr(at_ + 1, end - at_ - 1);
    if (word.size() > 64 || word.find('\\') != std::string_view::npos) damaged("a strange word");
    at_ = end + 1;
    return word;
  }
  bool boolean() {
    skip_space();
    for (const bool value : {true, false}) {
      const std::string_view word = value ? "True" : "False";
      if (text_.substr(at_, word.size()) == word) {
        at_ += word.size();
        return value;
      }
    }
    damaged("expected True or False");
  }
  Dims tuple() {
    Dims dims;
    expect('(');
    while (!accept(')')) {
      skip_space();
      std::int64_t size = 0;
      const char* end = text_.data() + text_.size();
      const auto result = std::from_chars(text_.data() + at_, end, size);
      if (result.ec != std::errc() || size < 0) damaged("a size that is no number from 0 up");
      at_ = static_cast<std::size_t>(result.ptr - text_.data());
      if (at_ < text_.size() && text_[at_] == 'L') ++at_;  // long integers of Python 2
      dims.push_back(size);
      check_limit(dims.size(), limits::kMaxRank, "the number of dimensions");
      if (!accept(',')) {
        expect(')');
        break;
      }
    }
    return dims;
  }

  std::string_view text_;
  const std::string& what_;
  std::size_t at_ = 0;
};

// Copies an array whose first index runs fastest into one whose last does.
void to_c_order(const std::byte* from, std::byte* to, const Dims& dims, std::size_t width) {
  const std::size_t rank = dims.size();
  std::vector<std::int64_t> index(rank, 0), stride(rank, 1);
  for (std::size_t d = 1; d < rank; ++d) stride[d] = stride[d - 1] * dims[d - 1];
  const std::int64_t count = element_count(dims);
  std::int64_t source = 0;
  for (std::int64_t i = 0; i < count; ++i, to += width) {
    std::memcpy(to, from + static_cast<std::size_t>(source) * width, width);
    for (std::size_t d = rank; d-- > 0;) {
      source += stride[d];
      if (++index[d] < dims[d]) break;
      source -= stride[d] * dims[d];
      index[d] = 0;
    }
  }
}

}  // namespace

NpyHeader parse_npy_header(std::span<const std::byte> file, const std::string& what) {
  return with_context("reading " + what, kHints, [&] {
    if (file.empty()) fail(ErrorCode::kBadFile, "{}: the file is empty", what);
    ByteReader reader(file);
    if (file.size() < kMagic.size() || reader.take_text(kMagic.size(), "magic") != kMagic)
      throw make_error(ErrorCode::kBadFile, "{}: this is no .npy file (it does not start with \\x93NUMPY)",
                       what)
          .hint("write it with numpy.save");
    const auto major = reader.take_little_endian<std::uint8_t>("format version");
    reader.take_little_endian<std::uint8_t>("format version");
    if (major < 1 || major > 3)
      fail(ErrorCode::kUnsupported, "{}: .npy format version {} is not known (1 to 3 are)", what, major);
    const std::uint64_t length = major == 1 ? reader.take_little_endian<std::uint16_t>("header length")
                                            : reader.take_little_endian<std::uint32_t>("header length");
    check_limit(length, limits::kMaxNpyHeaderBytes, "the header's length");
    const std::string_view text = reader.take_text(length, "header");
    NpyHeader header = DictReader(text, what).read();
    header.data_offset = reader.offset();
    const auto need = static_cast<std::uint64_t>(byte_count(header.dtype, header.dims));
    if (need != reader.left())
      throw make_error(ErrorCode::kBadFile,
                       "{}: the header promises {} of {} = {} bytes, but the file holds {}", what,
                       to_string(header.dims), name(header.dtype), need, reader.left())
          .hint(need > reader.left() ? "the file was cut short: copy or write it again" : "write it again");
    return header;
  });
}

Tensor npy_tensor(std::span<const std::byte> file, std::shared_ptr<const void> owner,
                  const std::string& what) {
  const NpyHeader header = parse_npy_header(file, what);
  const std::byte* elements = file.data() + header.data_offset;
  const auto width = static_cast<std::size_t>(bits(header.dtype) / 8);
  int real_dims = 0;  // with at most one size that is not 1, both orders are the same
  for (const std::int64_t size : header.dims) real_dims += size != 1;
  if (header.fortran_order && real_dims > 1) {
    Tensor tensor = Tensor::allocate(header.dtype, header.dims);
    to_c_order(elements, tensor.mut<std::byte>(), header.dims, width);
    return tensor;
  }
  if (reinterpret_cast<std::uintptr_t>(elements) % width != 0)
    return Tensor::copy_of(header.dtype, header.dims, elements, file.size() - header.data_offset);
  return Tensor::share(header.dtype, header.dims, elements, std::move(owner));
}

Tensor read_npy(const std::string& path) {
  const MappedFile file(path);
  return npy_tensor(file.bytes(), file.owner(), path);
}

void write_npy(const std::string& path, const TensorView& tensor) {
  const char* code = nullptr;
  for (const TypeCode& type : kTypes)
    if (type.dtype == tensor.dtype) code = type.code;
  if (!code) fail(ErrorCode::kUnsupported, "{}: NumPy has no type {}", path, name(tensor.dtype));
  std::string shape;
  for (const std::int64_t size : tensor.dims)
    shape += (shape.empty() ? "" : " ") + std::to_string(size) + ",";
  if (tensor.dims.size() > 1) shape.pop_back();
  std::string header = fmt::format("{{'descr': '{}{}', 'fortran_order': False, 'shape': ({}), }}",
                                   code[1] == '1' ? '|' : '<', code, shape);
  // Elements start at a multiple of 64; the header ends in a newline.
  header.append(63 - (kMagic.size() + 4 + header.size()) % 64, ' ');
  header += '\n';
  std::string start(kMagic);
  start += {'\x01', '\x00', static_cast<char>(header.size() & 0xFF), static_cast<char>(header.size() >> 8)};
  AtomicFile file(path);
  file.write(start);
  file.write(header);
  file.write(std::span(static_cast<const std::byte*>(tensor.data),
                       static_cast<std::size_t>(byte_count(tensor.dtype, tensor.dims))));
  file.commit();
}

}  // namespace pare
