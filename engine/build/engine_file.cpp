#include "engine/build/engine_file.h"

#include <algorithm>
#include <cstring>
#include <map>

#include "engine/base/atomic_file.h"
#include "engine/base/byte_reader.h"
#include "engine/base/error.h"
#include "engine/base/json.h"
#include "engine/base/mapped_file.h"
#include "engine/base/paths.h"
#include "engine/base/reader_hints.h"
#include "engine/base/sha256.h"
#include "engine/build/graph_json.h"
#include "engine/build/plan/plan_json.h"

namespace pare {
namespace {

constexpr ReaderHints kHints = {"build the engine again: pare build MODEL -o ENGINE",
                                "build the engine again with this version of pare"};
constexpr char kMagic[] = "PAREENG1";
constexpr std::uint32_t kVersion = 3;
constexpr std::uint64_t kHeader = 72, kPage = 4096, kMostJson = 64u << 20;
constexpr std::int64_t kAlignment = 256, kLeastApart = 4096;

[[noreturn]] void bad(const std::string& what, const std::string& why) {
  throw make_error(ErrorCode::kBadFile, "the engine file is damaged: {}", why)
      .at(what)
      .hint("build it again");
}

std::int64_t aligned(std::int64_t bytes) { return (bytes + kAlignment - 1) / kAlignment * kAlignment; }

std::string apart_path(const std::string& engine, const std::string& hash) {
  return join_path(join_path(parent_path(engine), kWeightsFolder), hash + ".weights");
}

// Tensors by the hash of their bytes: equal ones are stored once.
class Blobs {
 public:
  Blobs(std::string path, bool apart) : path_(std::move(path)), apart_(apart) {}

  std::string add(const Tensor& t, const std::string& known = "") {
    const std::string hash = known.empty() ? hex(pare::sha256(t.byte_span())) : known;
    if (!places_.emplace(hash, 0).second) return hash;
    Json row = Json::array({hash, t.bytes()});
    if (apart_ && t.bytes() >= kLeastApart) {
      row.push_back(-1);
      const std::string path = apart_path(path_, hash);
      make_directories(parent_path(path));
      if (!path_exists(path)) {
        AtomicFile file(path);
        file.write(t.byte_span());
        file.commit();
      }
    } else {
      row.push_back(place(t));
    }
    table_.push_back(std::move(row));
    return hash;
  }
  std::int64_t place(const Tensor& t) {
    const std::int64_t at = bytes_;
    pieces_.push_back(t);
    bytes_ += aligned(t.bytes());
    return at;
  }
  const Json& table() const { return table_; }
  std::int64_t bytes() const { return bytes_; }
  template <typename Sink>
  void each(Sink sink) const {
    const std::vector<std::byte> zeros(kAlignment, std::byte{0});
    for (const Tensor& t : pieces_) {
      sink(t.byte_span());
      sink(std::span<const std::byte>(zeros).first(static_cast<std::size_t>(aligned(t.bytes()) - t.bytes())));
    }
  }

 private:
  std::string path_;
  bool apart_;
  std::map<std::string, int> places_;
  Json table_ = Json::array();
  std::vector<Tensor> pieces_;
  std::int64_t bytes_ = 0;
};

// The other way: the block of a file, and files of weights beside it.
class BlobReader {
 public:
  BlobReader(const Json& table, std::span<const std::byte> block, std::shared_ptr<const void> owner,
             const std::string& path, bool check_sum)
      : block_(block), owner_(std::move(owner)), path_(path), check_sum_(check_sum) {
    for (const Json& row : table) {
      if (!row.is_array() || row.size() != 3 || !row[0].is_string() || !row[1].is_number_integer() ||
          !row[2].is_number_integer())
        bad(path, "a row of its table of weights");
      const Place place{row[1].get<std::int64_t>(), row[2].get<std::int64_t>()};
      if (place.bytes < 0) bad(path, "weights of a negative size");
      places_[hex(with_context("its weights", [&] { return digest_from_hex(row[0].get<std::string>()); }))] =
          place;
    }
  }

  Tensor find(const std::string& hash, DType type, const Dims& dims) const {
    const auto it = places_.find(hash);
    if (it == places_.end()) bad(path_, "weights that are not in its table");
    if (it->second.bytes != byte_count(type, dims)) bad(path_, "weights of another size");
    if (it->second.offset >= 0) return Tensor::share(type, dims, at(it->second), owner_);
    const std::string path = apart_path(path_, hash);
    if (!path_exists(path))
      throw make_error(ErrorCode::kBadFile, "the engine keeps its weights apart, and '{}' is missing", path)
          .at(path_)
          .hint(fmt::format("copy the folder '{}' along with the engine, or build without --weights-apart",
                            kWeightsFolder));
    const auto file = std::make_shared<MappedFile>(path);
    if (static_cast<std::int64_t>(file->bytes().size()) != it->second.bytes ||
        (check_sum_ && hex(pare::sha256(file->bytes())) != hash))
      throw make_error(ErrorCode::kBadFile, "the weights in '{}' are not those that its name says", path)
          .at(path_)
          .hint("the file is damaged: build the engine again");
    return Tensor::share(type, dims, file->bytes().data(), file->owner());
  }
  Tensor piece(std::int64_t offset, std::int64_t bytes) const {
    return Tensor::share(DType::kU8, {bytes}, at({bytes, offset}), owner_);
  }

 private:
  struct Place {
    std::int64_t bytes, offset;
  };
  const std::byte* at(const Place& p) const {
    const auto all = static_cast<std::int64_t>(block_.size());
    if (p.offset < 0 || p.offset % kAlignment != 0 || p.bytes < 0 || p.bytes > all ||
        p.offset > all - p.bytes)
      bad(path_, "weights or a kernel outside of the file");
    return block_.data() + p.offset;
  }

  std::span<const std::byte> block_;
  std::shared_ptr<const void> owner_;
  const std::string& path_;
  bool check_sum_;
  std::map<std::string, Place> places_;
};

Json rows_json(const std::vector<EngineRow>& rows) {
  Json list = Json::array();
  for (const EngineRow& r : rows)
    list.push_back({{"name", r.name},
                    {"op", r.op},
                    {"kernel", r.kernel},
                    {"requested", r.requested},
                    {"realized", r.realized},
                    {"why", r.why},
                    {"us", json_number(r.microseconds)}});
  return list;
}

std::vector<EngineRow> read_rows(const Json& list, const std::string& path) {
  std::vector<EngineRow> rows;
  for (const Json& json : list) {
    EngineRow r;
    r.name = json_string(json, "name", path);
    r.op = json_string(json, "op", path);
    r.kernel = json_string(json, "kernel", path);
    r.requested = json_string(json, "requested", path);
    r.realized = json_string(json, "realized", path);
    r.why = json_string(json, "why", path);
    r.microseconds = json_double(json, "us", path);
    rows.push_back(std::move(r));
  }
  return rows;
}

Json plan_document(const EnginePlan& plan, Blobs& blobs) {
  Json json = plan_to_json(plan);
  for (std::size_t i = 0; i < plan.tensors.size(); ++i)
    if (plan.tensors[i].role == PlanRole::kWeight)
      json["tensors"][i]["sha256"] = blobs.add(plan.tensors[i].data, plan.tensors[i].hash);
  return json;
}

EnginePlan read_plan(const Json& json, const BlobReader& blobs, const std::string& path) {
  EnginePlan plan = plan_from_json(json, path);
  if (plan.weight_bytes < 0) bad(path, "a negative size");
  check_plan(plan, path);
  const Json& tensors = json_array(json, "tensors", path);
  for (std::size_t i = 0; i < plan.tensors.size(); ++i) {
    PlanTensor& t = plan.tensors[i];
    if (t.role != PlanRole::kWeight) continue;
    t.hash = json_string(tensors[i], "sha256", path);
    t.data = blobs.find(t.hash, t.dtype, t.dims);
  }
  return plan;
}

void read_provenance(EngineProvenance& to, const Json& p, const std::string& path) {
  to.pare_version = json_string(p, "pare", path);
  to.model = json_string(p, "model", path);
  to.model_sha256 = json_string(p, "model_sha256", path);
  if (p.contains("recipe")) to.recipe = json_string(p, "recipe", path);
  if (p.contains("data")) to.data = json_string(p, "data", path);
  to.device = json_string(p, "device", path);
  to.architecture = json_string(p, "architecture", path);
  to.batch = json_int(p, "batch", path);
  for (const auto& [key, value] : json_object(p, "versions", path).items())
    if (value.is_string()) to.versions.emplace_back(key, value.get<std::string>());
}

}  // namespace

void write_engine(const std::string& path, const EnginePlan& plan, const EngineProvenance& p) {
  EngineFile engine;
  engine.plan = plan;
  engine.provenance = p;
  write_engine(path, engine);
}

void write_engine(const std::string& path, const EngineFile& engine) {
  const EngineProvenance& p = engine.provenance;
  Blobs blobs(path, engine.weights_apart);
  Json document = {{"plan", plan_document(engine.plan, blobs)}};
  document["more"] = Json::array();
  for (const EnginePlan& plan : engine.more) document["more"].push_back(plan_document(plan, blobs));
  document["profile"] = profile_json(engine.profile);
  document["rows"] = rows_json(engine.rows);
  document["integer"] = engine.integer;
  if (engine.graph != nullptr)
    document["graph"] = graph_to_json(*engine.graph, [&](const Tensor& t) { return blobs.add(t); });
  Json versions = Json::object(), binaries = Json::array();
  for (const auto& [key, value] : p.versions) versions[key] = value;
  document["provenance"] = {{"pare", p.pare_version},
                            {"model", p.model},
                            {"model_sha256", p.model_sha256},
                            {"recipe", p.recipe},
                            {"data", p.data},
                            {"device", p.device},
                            {"architecture", p.architecture},
                            {"versions", versions},
                            {"batch", p.batch}};
  std::map<std::string, Tensor> kernels = engine.plan.binaries;
  for (const EnginePlan& plan : engine.more) kernels.insert(plan.binaries.begin(), plan.binaries.end());
  for (const auto& [hash, code] : kernels) {
    const std::int64_t at = blobs.place(code);
    binaries.push_back({{"hash", hash}, {"offset", at}, {"bytes", code.bytes()}});
  }
  document["binaries"] = std::move(binaries);
  document["blobs"] = blobs.table();
  const std::string json = dump(document);
  if (json.size() > kMostJson)
    fail(ErrorCode::kUnsupported, "the engine's plan has {} bytes, more than the {} that a file holds",
         json.size(), kMostJson);
  const std::uint64_t block = (kHeader + json.size() + kPage - 1) / kPage * kPage;
  std::string front = json;
  front.resize(block - kHeader, '\0');
  Sha256 hash;
  hash.update(front);
  blobs.each([&](std::span<const std::byte> piece) { hash.update(piece); });
  const Digest digest = hash.finish();
  std::string header(kMagic, 8);
  const auto put = [&](auto value) { header.append(reinterpret_cast<const char*>(&value), sizeof value); };
  put(kVersion);
  put(std::uint32_t{0});
  put(static_cast<std::uint64_t>(json.size()));
  put(block);
  put(static_cast<std::uint64_t>(blobs.bytes()));
  header.append(reinterpret_cast<const char*>(digest.data()), digest.size());
  AtomicFile file(path);
  file.write(header);
  file.write(front);
  blobs.each([&](std::span<const std::byte> piece) { file.write(piece); });
  file.commit();
}

EngineFile read_engine(const std::string& path) {
  const MappedFile file(path);
  return parse_engine(file.bytes(), file.owner(), path);
}

namespace {

EngineFile parse(std::span<const std::byte> bytes, const std::shared_ptr<const void>& owner,
                 const std::string& path, bool check_sum) {
  if (bytes.size() < kHeader || std::memcmp(bytes.data(), kMagic, 8) != 0)
    throw make_error(ErrorCode::kBadFile, "'{}' is no engine file of pare", path).at(path);
  ByteReader reader(bytes.subspan(8));
  const auto version = reader.take_little_endian<std::uint32_t>("version");
  if (version != kVersion)
    throw make_error(ErrorCode::kBadFile, "the engine file has version {}, this program reads {}", version,
                     kVersion)
        .at(path)
        .hint("build it again");
  reader.take_little_endian<std::uint32_t>("padding");
  const auto json_bytes = reader.take_little_endian<std::uint64_t>("JSON length");
  const auto block = reader.take_little_endian<std::uint64_t>("block offset");
  const auto block_bytes = reader.take_little_endian<std::uint64_t>("block length");
  if (json_bytes > kMostJson || block % kPage != 0 || block > bytes.size() ||
      block_bytes != bytes.size() - block || json_bytes + kHeader > block)
    bad(path, "its lengths do not add up, it may be cut short");
  EngineFile engine;
  Digest digest;
  std::memcpy(digest.data(), bytes.data() + 40, 32);
  if (check_sum && sha256(bytes.subspan(kHeader)) != digest) bad(path, "its checksum does not fit");
  engine.sha256 = hex(digest);
  const std::string_view text(reinterpret_cast<const char*>(bytes.data()) + kHeader, json_bytes);
  const Json document = parse_json(text, path);
  const BlobReader blobs(json_array(document, "blobs", path), bytes.subspan(block), owner, path, check_sum);
  engine.plan = read_plan(json_object(document, "plan", path), blobs, path);
  for (const Json& plan : json_array(document, "more", path))
    engine.more.push_back(read_plan(plan, blobs, path));
  engine.profile = read_profile(json_array(document, "profile", path), path);
  engine.rows = read_rows(json_array(document, "rows", path), path);
  engine.integer = json_bool(document, "integer", path);
  if (document.contains("graph"))
    engine.graph = std::make_shared<const Graph>(graph_from_json(
        json_object(document, "graph", path),
        [&](const std::string& hash, DType type, const Dims& dims) { return blobs.find(hash, type, dims); },
        path));
  read_provenance(engine.provenance, json_object(document, "provenance", path), path);
  for (const Json& row : json_array(document, "binaries", path))
    engine.plan.binaries[json_string(row, "hash", path)] =
        blobs.piece(json_int(row, "offset", path), json_int(row, "bytes", path));
  for (EnginePlan& plan : engine.more) plan.binaries = engine.plan.binaries;
  return engine;
}

}  // namespace

EngineFile parse_engine(std::span<const std::byte> bytes, const std::shared_ptr<const void>& owner,
                        const std::string& path, bool check_sum) {
  return with_hints(kHints, [&] { return parse(bytes, owner, path, check_sum); });
}

}  // namespace pare
