#include "graphsurgeon/onnx/tensor_proto.h"

#include <algorithm>
#include <cstring>

#include "engine/base/byte_reader.h"
#include "engine/base/error.h"
#include "engine/base/limits.h"
#include "graphsurgeon/onnx/external_data.h"
#include "graphsurgeon/onnx/wire_scan.h"

namespace pare {
namespace {

Dims read_dims(const onnx::TensorProto& proto) {
  check_limit(static_cast<std::uint64_t>(proto.dims_size()), limits::kMaxRank, "the tensor's rank");
  return {proto.dims().begin(), proto.dims().end()};
}

// Copies `values` (one per element, or one per byte of packed 4- and 2-bit data) as numbers of type T.
template <typename T, typename Values>
Tensor narrow(DType type, const Dims& dims, const Values& values, const char* field) {
  const std::int64_t bytes = byte_count(type, dims);
  if (values.size() * static_cast<std::int64_t>(sizeof(T)) != bytes)
    fail(ErrorCode::kBadFile, "{} of shape {} needs {} entries in {}, which has {}", name(type),
         to_string(dims), bytes / static_cast<std::int64_t>(sizeof(T)), field, values.size());
  Tensor tensor = Tensor::allocate(type, dims);
  T* out = tensor.mut<T>();
  for (int i = 0; i < values.size(); ++i) {
    if constexpr (std::is_floating_point_v<T>)
      out[i] = static_cast<T>(values[i]);
    else
      out[i] = static_cast<T>(static_cast<std::uint64_t>(values[i]));  // the low bits hold the code
  }
  return tensor;
}

Tensor from_fields(DType type, const Dims& dims, const onnx::TensorProto& proto) {
  switch (type) {
    case DType::kF32:
    case DType::kComplex64:
      return narrow<float>(type, dims, proto.float_data(), "float_data");
    case DType::kF64:
    case DType::kComplex128:
      return narrow<double>(type, dims, proto.double_data(), "double_data");
    case DType::kI64:
      return narrow<std::int64_t>(type, dims, proto.int64_data(), "int64_data");
    case DType::kU64:
      return narrow<std::uint64_t>(type, dims, proto.uint64_data(), "uint64_data");
    case DType::kU32:
      return narrow<std::uint32_t>(type, dims, proto.uint64_data(), "uint64_data");
    case DType::kI32:
      return narrow<std::int32_t>(type, dims, proto.int32_data(), "int32_data");
    case DType::kU16:
    case DType::kI16:
    case DType::kF16:
    case DType::kBF16:
      return narrow<std::uint16_t>(type, dims, proto.int32_data(), "int32_data");
    case DType::kBool: {
      Tensor flags = narrow<std::uint8_t>(type, dims, proto.int32_data(), "int32_data");
      for (std::int64_t i = 0; i < flags.size(); ++i)
        flags.mut<std::uint8_t>()[i] = proto.int32_data(static_cast<int>(i)) != 0;
      return flags;
    }
    default:
      return narrow<std::uint8_t>(type, dims, proto.int32_data(), "int32_data");
  }
}

Tensor read_strings(const Dims& dims, const onnx::TensorProto& proto) {
  if (element_count(dims) != proto.string_data_size())
    fail(ErrorCode::kBadFile, "shape {} needs {} strings, string_data has {}", to_string(dims),
         element_count(dims), proto.string_data_size());
  Tensor tensor = Tensor::allocate(DType::kString, dims);
  std::copy(proto.string_data().begin(), proto.string_data().end(), tensor.mut<std::string>());
  return tensor;
}

// What inference of shapes may look at is smaller.
constexpr std::uint64_t kLargeBytes = 65536;

Tensor from_bytes(DType type, const Dims& dims, std::span<const std::byte> bytes,
                  const std::shared_ptr<const void>& owner, bool unread = false) {
  const auto needed = static_cast<std::uint64_t>(byte_count(type, dims));
  if (bytes.size() < needed)
    throw make_error(ErrorCode::kBadFile, "{} of shape {} needs {} bytes, its data has {}", name(type),
                     to_string(dims), needed, bytes.size())
        .hint("the file is damaged or was cut short: export or copy it again");
  const int width = std::max(1, bits(type) / 8);
  const bool aligned = reinterpret_cast<std::uintptr_t>(bytes.data()) % static_cast<unsigned>(width) == 0;
  const auto is_flag = [](std::byte b) { return std::to_integer<unsigned>(b) <= 1; };
  const bool flags = type != DType::kBool || std::all_of(bytes.begin(), bytes.begin() + needed, is_flag);
  const bool view = aligned || (unread && is_float(type) && needed >= kLargeBytes);
  if (owner && view && flags && needed > 0) return Tensor::share(type, dims, bytes.data(), owner);
  Tensor tensor = Tensor::copy_of(type, dims, bytes.data(), needed);
  if (!flags) {
    auto* out = tensor.mut<std::uint8_t>();
    for (std::uint64_t i = 0; i < needed; ++i) out[i] = out[i] != 0;
  }
  return tensor;
}

Tensor read_payload(const onnx::TensorProto& proto, TensorSource& source) {
  const DType type = dtype_of(proto.data_type());
  const Dims dims = read_dims(proto);
  element_count(dims);
  if (proto.has_segment())
    throw make_error(ErrorCode::kUnsupported, "tensors in segments are not read")
        .hint("no exporter writes them; export the model again");
  if (proto.data_location() == onnx::TensorProto::EXTERNAL) {
    if (type == DType::kString) fail(ErrorCode::kBadFile, "strings cannot be external data");
    const ExternalBytes found = open_external(proto, source, byte_count(type, dims));
    return from_bytes(type, dims, found.bytes, found.owner);
  }
  if (type == DType::kString) return read_strings(dims, proto);
  const int number = payload_number(proto.doc_string());
  if (number >= 0) {
    if (static_cast<std::size_t>(number) >= source.payloads.size())
      fail(ErrorCode::kBadFile, "the tensor's data is not in the file");
    return from_bytes(type, dims, source.payloads[static_cast<std::size_t>(number)], source.owner,
                      source.unread);
  }
  if (!proto.raw_data().empty() || element_count(dims) == 0)
    return from_bytes(type, dims, std::as_bytes(std::span(proto.raw_data())), nullptr);
  return from_fields(type, dims, proto);
}

}  // namespace

DType dtype_of(std::int32_t onnx_type) {
  if (onnx_type <= 0 || onnx_type >= kDTypeCount)
    fail(ErrorCode::kBadFile, "{} is not an element type of ONNX", onnx_type);
  return static_cast<DType>(onnx_type);
}

Tensor read_tensor(const onnx::TensorProto& proto, TensorSource& source) {
  return with_context("reading tensor '" + proto.name() + "'", [&] { return read_payload(proto, source); });
}

void write_tensor_head(const Tensor& tensor, onnx::TensorProto& proto) {
  proto.set_data_type(static_cast<std::int32_t>(tensor.dtype()));
  for (const std::int64_t size : tensor.dims()) proto.add_dims(size);
}

void write_tensor(const Tensor& tensor, onnx::TensorProto& proto) {
  write_tensor_head(tensor, proto);
  write_payload(tensor, proto);
}

void write_payload(const Tensor& tensor, onnx::TensorProto& proto) {
  if (tensor.dtype() == DType::kString) {
    const auto* texts = tensor.as<std::string>();
    for (std::int64_t i = 0; i < tensor.size(); ++i) proto.add_string_data(texts[i]);
    return;
  }
  const auto bytes = tensor.byte_span();
  if (!bytes.empty()) proto.set_raw_data(bytes.data(), bytes.size());
}

}  // namespace pare
