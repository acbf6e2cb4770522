#include "graphsurgeon/gguf/gguf_file.h"

#include <algorithm>
#include <limits>
#include <set>

#include "engine/base/byte_reader.h"
#include "engine/base/error.h"
#include "engine/base/limits.h"
#include "engine/base/mapped_file.h"
#include "engine/base/reader_hints.h"

namespace pare {
namespace {

constexpr std::uint64_t kMostKeys = 1u << 20, kMostTensors = 1u << 20, kMostRank = 8;
constexpr std::uint32_t kMagic = 0x46554747;  // "GGUF"

enum Kind : std::uint32_t {
  kUint8,
  kInt8,
  kUint16,
  kInt16,
  kUint32,
  kInt32,
  kFloat32,
  kBool,
  kString,
  kArray,
  kUint64,
  kInt64,
  kFloat64
};

class Parser {
 public:
  Parser(std::span<const std::byte> bytes, const std::string& path) : bytes_(bytes), reader_(bytes) {
    file_.path = path;
  }

  GgufFile run() {
    if (reader_.take_little_endian<std::uint32_t>("the mark") != kMagic)
      fail(ErrorCode::kBadFile, "this is no GGUF file: it does not begin with 'GGUF'");
    const auto version = reader_.take_little_endian<std::uint32_t>("the version");
    if (version != 2 && version != 3)
      throw make_error(ErrorCode::kUnsupported, "GGUF version {} is not read; 2 and 3 are", version)
          .hint("convert the file again with a current llama.cpp");
    file_.version = static_cast<int>(version);
    const auto tensors = reader_.take_little_endian<std::uint64_t>("the number of tensors");
    const auto keys = reader_.take_little_endian<std::uint64_t>("the number of keys");
    check_limit(tensors, kMostTensors, "the number of tensors");
    check_limit(keys, kMostKeys, "the number of keys");
    for (std::uint64_t i = 0; i < keys; ++i) {
      std::string key = text("a key");
      const auto kind = reader_.take_little_endian<std::uint32_t>("a key's type");
      const bool added = with_context("reading the value of '" + key + "'",
                                      [&] { return file_.metadata.emplace(key, value(kind)).second; });
      if (!added) fail(ErrorCode::kBadFile, "the key '{}' is there twice", key);
    }
    std::vector<std::uint64_t> offsets;
    for (std::uint64_t i = 0; i < tensors; ++i) offsets.push_back(tensor());
    place(offsets);
    return std::move(file_);
  }

 private:
  std::string text(const char* what) {
    const auto length = reader_.take_little_endian<std::uint64_t>(what);
    return std::string(reader_.take_text(length, what));
  }

  void scalar(std::uint32_t kind, GgufValue& out) {
    const auto integer = [&](auto v) { out.ints.push_back(static_cast<std::int64_t>(v)); };
    switch (kind) {
      case kUint8:
        return integer(reader_.take_little_endian<std::uint8_t>("a value"));
      case kInt8:
        return integer(reader_.take_little_endian<std::int8_t>("a value"));
      case kUint16:
        return integer(reader_.take_little_endian<std::uint16_t>("a value"));
      case kInt16:
        return integer(reader_.take_little_endian<std::int16_t>("a value"));
      case kUint32:
        return integer(reader_.take_little_endian<std::uint32_t>("a value"));
      case kInt32:
        return integer(reader_.take_little_endian<std::int32_t>("a value"));
      case kInt64:
        return integer(reader_.take_little_endian<std::int64_t>("a value"));
      case kBool:
        return integer(reader_.take_little_endian<std::uint8_t>("a value") != 0);
      case kUint64: {
        const auto v = reader_.take_little_endian<std::uint64_t>("a value");
        if (v > static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max()))
          fail(ErrorCode::kBadFile, "{} is too large", v);
        return integer(v);
      }
      case kFloat32:
        out.floats.push_back(reader_.take_little_endian<float>("a value"));
        return;
      case kFloat64:
        out.floats.push_back(reader_.take_little_endian<double>("a value"));
        return;
      case kString:
        out.texts.push_back(text("a value"));
        return;
      default:
        fail(ErrorCode::kBadFile, "type {} is none of GGUF's", kind);
    }
  }

  GgufValue value(std::uint32_t kind) {
    GgufValue out;
    if (kind != kArray) {
      scalar(kind, out);
      return out;
    }
    out.is_array = true;
    const auto inner = reader_.take_little_endian<std::uint32_t>("an array's type");
    const auto count = reader_.take_little_endian<std::uint64_t>("an array's length");
    if (inner == kArray) fail(ErrorCode::kUnsupported, "arrays in arrays are not read");
    check_limit(count, reader_.left(), "an array's length");  // each takes a byte at least
    for (std::uint64_t i = 0; i < count; ++i) scalar(inner, out);
    return out;
  }

  // Name, sizes and type; returns its offset in the data.
  std::uint64_t tensor() {
    GgufTensor t;
    t.name = text("a tensor's name");
    if (!names_.insert(t.name).second) fail(ErrorCode::kBadFile, "the tensor '{}' is there twice", t.name);
    return with_context("reading the place of tensor '" + t.name + "'", [&] {
      const auto rank = reader_.take_little_endian<std::uint32_t>("its rank");
      check_limit(rank, kMostRank, "its rank");
      for (std::uint32_t i = 0; i < rank; ++i) {
        const auto size = reader_.take_little_endian<std::uint64_t>("its sizes");
        check_limit(size, std::uint64_t{1} << 48, "a size");
        t.dims.insert(t.dims.begin(), static_cast<std::int64_t>(size));
      }
      const auto code = reader_.take_little_endian<std::uint32_t>("its type");
      t.type = find_ggml_type(static_cast<int>(std::min<std::uint32_t>(code, 1u << 30)));
      if (t.type == nullptr)
        throw make_error(ErrorCode::kUnsupported, "type {} is not read", code)
            .hint("known are " + known_ggml_types());
      const std::int64_t row = t.dims.empty() ? 1 : t.dims.back();
      if (row % t.type->block != 0)
        fail(ErrorCode::kBadFile, "rows of {} are no whole blocks of {} ({})", row, t.type->block,
             t.type->name);
      const auto offset = reader_.take_little_endian<std::uint64_t>("its offset");
      file_.tensors.push_back(std::move(t));
      return offset;
    });
  }

  void place(const std::vector<std::uint64_t>& offsets) {
    const std::int64_t alignment = file_.integer("general.alignment", 32);
    if (alignment < 1 || alignment > (1 << 24) || (alignment & (alignment - 1)) != 0)
      fail(ErrorCode::kBadFile, "general.alignment is {}: no power of two", alignment);
    const auto step = static_cast<std::size_t>(alignment);
    const std::size_t begin = std::min((reader_.offset() + step - 1) / step * step, bytes_.size());
    const std::span<const std::byte> data = bytes_.subspan(begin);
    struct Extent {
      std::uint64_t begin, end;
      std::size_t tensor;
    };
    std::vector<Extent> extents;
    for (std::size_t i = 0; i < offsets.size(); ++i) {
      GgufTensor& t = file_.tensors[i];
      with_context("placing tensor '" + t.name + "'", [&] {
        const std::int64_t blocks = element_count(t.dims) / t.type->block;
        std::int64_t bytes = 0;
        if (__builtin_mul_overflow(blocks, static_cast<std::int64_t>(t.type->bytes), &bytes))
          fail(ErrorCode::kBadFile, "its size overflows");
        if (offsets[i] % step != 0)
          fail(ErrorCode::kBadFile, "it begins at {}, no multiple of {}", offsets[i], step);
        if (offsets[i] > data.size() || static_cast<std::uint64_t>(bytes) > data.size() - offsets[i])
          fail(ErrorCode::kBadFile, "its {} bytes from {} lie outside the file", bytes, offsets[i]);
        t.bytes = data.subspan(static_cast<std::size_t>(offsets[i]), static_cast<std::size_t>(bytes));
        if (bytes > 0) extents.push_back({offsets[i], offsets[i] + static_cast<std::uint64_t>(bytes), i});
      });
    }
    std::sort(extents.begin(), extents.end(),
              [](const Extent& a, const Extent& b) { return a.begin < b.begin; });
    for (std::size_t i = 1; i < extents.size(); ++i)
      if (extents[i].begin < extents[i - 1].end)
        fail(ErrorCode::kBadFile, "tensors '{}' and '{}' overlap", file_.tensors[extents[i - 1].tensor].name,
             file_.tensors[extents[i].tensor].name);
  }

  std::span<const std::byte> bytes_;
  ByteReader reader_;
  GgufFile file_;
  std::set<std::string> names_;
};

}  // namespace

const GgufValue* GgufFile::find(const std::string& key) const {
  const auto found = metadata.find(key);
  return found == metadata.end() ? nullptr : &found->second;
}

std::int64_t GgufFile::integer(const std::string& key, std::int64_t otherwise) const {
  const GgufValue* value = find(key);
  if (value == nullptr) return otherwise;
  if (value->is_array || value->ints.size() != 1)
    throw make_error(ErrorCode::kBadFile, "'{}' is no whole number", key).at(path);
  return value->ints[0];
}

double GgufFile::number(const std::string& key, double otherwise) const {
  const GgufValue* value = find(key);
  if (value == nullptr) return otherwise;
  if (value->is_array || value->ints.size() + value->floats.size() != 1)
    throw make_error(ErrorCode::kBadFile, "'{}' is no number", key).at(path);
  return value->floats.empty() ? static_cast<double>(value->ints[0]) : value->floats[0];
}

std::string GgufFile::text(const std::string& key, const std::string& otherwise) const {
  const GgufValue* value = find(key);
  if (value == nullptr) return otherwise;
  if (value->is_array || value->texts.size() != 1)
    throw make_error(ErrorCode::kBadFile, "'{}' is no text", key).at(path);
  return value->texts[0];
}

GgufFile parse_gguf(std::span<const std::byte> bytes, std::shared_ptr<const void> owner,
                    const std::string& path) {
  try {
    GgufFile file = with_hints(kGgufHints, [&] { return Parser(bytes, path).run(); });
    file.owner = std::move(owner);
    return file;
  } catch (Error& error) {
    error.at(path);
    throw;
  }
}

GgufFile open_gguf(const std::string& path) {
  const MappedFile mapped(path);
  return parse_gguf(mapped.bytes(), mapped.owner(), path);
}

Tensor gguf_tensor(const GgufFile& file, const GgufTensor& tensor) {
  if (tensor.type->decode == nullptr) {
    const bool aligned = reinterpret_cast<std::uintptr_t>(tensor.bytes.data()) %
                             static_cast<std::uintptr_t>(tensor.type->bytes) ==
                         0;
    const Tensor shared = Tensor::share(tensor.type->plain, tensor.dims, tensor.bytes.data(), file.owner);
    return aligned ? shared : shared.clone();
  }
  Tensor values = Tensor::allocate(DType::kF32, tensor.dims);
  tensor.type->decode(reinterpret_cast<const std::uint8_t*>(tensor.bytes.data()), values.mut<float>(),
                      values.size() / tensor.type->block);
  return values;
}

}  // namespace pare
