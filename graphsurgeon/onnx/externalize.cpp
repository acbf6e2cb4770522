#include "graphsurgeon/onnx/externalize.h"

#include <google/protobuf/stubs/logging.h>

#include <cstring>
#include <map>

#include "engine/base/error.h"
#include "engine/base/limits.h"
#include "engine/base/mapped_file.h"
#include "engine/base/paths.h"
#include "graphsurgeon/onnx/external_data.h"
#include "graphsurgeon/onnx/external_store.h"
#include "graphsurgeon/onnx/proto_walk.h"
#include "graphsurgeon/onnx/tensor_proto.h"
#include "graphsurgeon/onnx/wire_scan.h"

namespace pare {
namespace {

onnx::ModelProto parse(const MappedFile& file, TensorSource& source) {
  const google::protobuf::LogSilencer silence;  // libraries never print
  StrippedModel stripped = strip_payloads(file.bytes());
  onnx::ModelProto model;
  if (!model.ParseFromString(stripped.message) || !model.has_graph())
    throw make_error(ErrorCode::kBadFile, "the file holds no ONNX graph")
        .at(file.path())
        .hint("the file is no ONNX model, is cut short or damaged: export or copy it again");
  source.payloads = std::move(stripped.payloads);
  source.owner = file.owner();
  source.directory = parent_path(file.path());
  return model;
}

// Checksums of the old files go: they are entered anew.
std::map<std::string, std::string> take_checksums(onnx::ModelProto& model) {
  std::map<std::string, std::string> sha256;
  auto& properties = *model.mutable_metadata_props();
  for (int i = properties.size() - 1; i >= 0; --i) {
    const std::string& key = properties.Get(i).key();
    if (key.rfind(kSha256Key, 0) != 0) continue;
    sha256[key.substr(std::strlen(kSha256Key))] = properties.Get(i).value();
    properties.DeleteSubrange(i, 1);
  }
  return sha256;
}

bool has_payload_elsewhere(const onnx::TensorProto& proto) {
  return proto.data_location() == onnx::TensorProto::EXTERNAL || payload_number(proto.doc_string()) >= 0;
}

// The tensor's payload, out into the store or into the message. Adds what the message grew by to `inlined`.
void place(onnx::TensorProto& proto, TensorPlace where, TensorSource& source, ExternalStore& store,
           std::uint64_t& inlined) {
  const bool may_go = where == TensorPlace::kInitializer || where == TensorPlace::kConstant;
  if (!may_go && !has_payload_elsewhere(proto)) return;
  if (proto.data_type() == onnx::TensorProto::STRING) return;
  const Tensor tensor = read_tensor(proto, source);
  const bool elsewhere = has_payload_elsewhere(proto);
  onnx::TensorProto moved = proto;
  moved.clear_raw_data();
  moved.clear_external_data();
  moved.clear_data_location();
  moved.clear_float_data();
  moved.clear_int32_data();
  moved.clear_int64_data();
  moved.clear_double_data();
  moved.clear_uint64_data();
  if (payload_number(proto.doc_string()) >= 0) moved.clear_doc_string();
  const bool goes = may_go && store.take(tensor, moved);
  if (!goes && !elsewhere) return;  // as it was, typed fields included
  if (!goes) {
    inlined += static_cast<std::uint64_t>(tensor.bytes());
    if (inlined > limits::kMaxProtobufBytes)
      throw make_error(ErrorCode::kUnsupported,
                       "more than {} bytes would stand in the model, which is all an "
                       "ONNX file holds",
                       limits::kMaxProtobufBytes)
          .hint("leave the weights outside: --one-file or --file-per-tensor");
    write_payload(tensor, moved);
  }
  proto = std::move(moved);
}

}  // namespace

ExternalizeReport externalize_onnx(const std::string& from, const std::string& to,
                                   const ExternalOptions& options) {
  const MappedFile file(from);
  TensorSource source;
  ExternalizeReport report;
  try {
    if (file.bytes().empty())
      throw make_error(ErrorCode::kBadFile, "the file is empty").at(from).hint("export or copy it again");
    onnx::ModelProto model = parse(file, source);
    const auto sha256 = take_checksums(model);
    ExternalStore store(to, options);
    std::uint64_t inlined = 0;
    for_each_tensor(model, [&](onnx::TensorProto& tensor, TensorPlace where) {
      place(tensor, where, source, store, inlined);
    });
    verify_external(source, sha256);
    store.write(model);
    std::string bytes;
    if (model.ByteSizeLong() > limits::kMaxProtobufBytes || !model.SerializeToString(&bytes))
      throw make_error(ErrorCode::kUnsupported,
                       "the model would have more than {} bytes, which is all an ONNX "
                       "file holds",
                       limits::kMaxProtobufBytes)
          .hint("let more tensors go out: a smaller --min-bytes");
    AtomicFile written(to);
    written.write(bytes);
    store.commit(written);
    report.tensors = store.tensors();
    report.model_bytes = static_cast<std::int64_t>(bytes.size());
    report.external_bytes = store.bytes();
    report.files = store.locations();
  } catch (Error& error) {
    if (error.code() == ErrorCode::kBadFile) {
      const std::string where = error.where();
      if (where.empty()) error.at(from);
      if (error.hint().empty()) error.hint("the file is damaged or was cut short: export or copy it again");
    }
    throw;
  }
  return report;
}

}  // namespace pare
