#include "recipes/quantize/layer_journal.h"

#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <limits>
#include <mutex>
#include <set>

#include "engine/base/cancel.h"
#include "engine/base/error.h"
#include "engine/base/json.h"
#include "engine/base/limits.h"
#include "engine/base/mapped_file.h"
#include "engine/base/paths.h"
#include "engine/base/sha256.h"
#include "engine/ir/subgraph.h"
#include "recipes/quantize/tensor_file.h"

namespace pare {
namespace {

const char* const kScores = "scores.jsonl";

// The tensors of a plan, by name. One list for writing and reading.
struct Field {
  const char* name;
  Tensor quant::WeightPlan::*tensor;
};
constexpr Field kFields[] = {{"codes", &quant::WeightPlan::codes},
                             {"scales", &quant::WeightPlan::scales},
                             {"global", &quant::WeightPlan::global},
                             {"zero_points", &quant::WeightPlan::zero_points}};

// What is not written is lost when a run is resumed: a member added to WeightPlan belongs into kFields, or
// into header_of and read_layers.
static_assert(sizeof(quant::WeightPlan) == 4 * sizeof(Tensor) + 2 * sizeof(double) +
                                               2 * sizeof(std::int64_t) + sizeof(quant::LayerRecord),
              "WeightPlan has members that the journal does not know");

Json record_json(const quant::LayerRecord& record) {
  Json tried = Json::array();
  for (const auto& [method, loss] : record.tried)
    tried.push_back({{"method", method}, {"loss", json_number(loss)}});
  return {{"method", record.method},
          {"fallback", record.fallback},
          {"loss", json_number(record.loss)},
          {"held_out_loss", json_number(record.held_out_loss)},
          {"tried", std::move(tried)}};
}

// NaN and infinities are null there.
double number_or_nan(const Json& json, const char* key, const std::string& path) {
  if (json.contains(key) && json[key].is_null()) return std::numeric_limits<double>::quiet_NaN();
  return json_double(json, key, path);
}

quant::LayerRecord read_record(const Json& json, const std::string& path) {
  quant::LayerRecord record;
  record.method = json_string(json, "method", path);
  record.fallback = json_string(json, "fallback", path);
  record.loss = number_or_nan(json, "loss", path);
  record.held_out_loss = number_or_nan(json, "held_out_loss", path);
  for (const Json& one : json_array(json, "tried", path))
    record.tried.emplace_back(json_string(one, "method", path), number_or_nan(one, "loss", path));
  return record;
}

std::string header_of(const std::string& key, const std::vector<quant::WeightPlan>& plans) {
  Json layers = Json::array();
  std::size_t offset = 0;
  Sha256 hash;
  for (const quant::WeightPlan& plan : plans) {
    Json tensors = Json::object();
    for (const Field& field : kFields) {
      const Tensor& tensor = plan.*field.tensor;
      if (tensor.empty()) continue;
      offset = next_offset(offset);
      tensors[field.name] = {{"dtype", name(tensor.dtype())}, {"dims", tensor.dims()}, {"offset", offset}};
      offset += static_cast<std::size_t>(tensor.bytes());
      hash.update(tensor.byte_span());
    }
    layers.push_back({{"tensors", tensors},
                      {"mse", json_number(plan.mse)},
                      {"sqnr_db", json_number(plan.sqnr_db)},
                      {"clipped", plan.clipped},
                      {"nearest", plan.nearest},
                      {"record", record_json(plan.record)}});
  }
  hash.update(dump(layers));
  return header_line(dump(
      {{"layer", 1}, {"key", key}, {"sha256", hex(hash.finish())}, {"bytes", offset}, {"layers", layers}}));
}

// Error kBadFile (or the JSON library's) for anything odd.
std::vector<quant::WeightPlan> read_layers(const std::string& path, const std::string& key, bool check) {
  Json header;
  const TensorFile file(path, header);
  if (json_string(header, "key", path) != key) fail(ErrorCode::kBadFile, "another key");
  Sha256 hash;
  std::vector<quant::WeightPlan> plans;
  for (const Json& layer : json_array(header, "layers", path)) {
    quant::WeightPlan plan;
    const Json& tensors = json_object(layer, "tensors", path);
    for (const Field& field : kFields) {
      if (!tensors.contains(field.name)) continue;
      plan.*field.tensor = file.at(tensors[field.name]);
      if (check) hash.update((plan.*field.tensor).byte_span());
    }
    plan.mse = json_double(layer, "mse", path);
    plan.sqnr_db = json_double(layer, "sqnr_db", path);
    plan.clipped = json_int(layer, "clipped", path);
    plan.nearest = json_bool(layer, "nearest", path);
    plan.record = read_record(json_object(layer, "record", path), path);
    plans.push_back(std::move(plan));
  }
  hash.update(dump(json_array(header, "layers", path)));
  if (check && hex(hash.finish()) != json_string(header, "sha256", path))
    fail(ErrorCode::kBadFile, "damaged");
  return plans;
}

// `contents`: whether the weight itself counts, for journals that outlive the process.
std::string key_of(const Graph& graph, const quant::Placement& unit, const std::string& method,
                   const std::string& base, bool contents) {
  Sha256 hash;
  const auto add = [&](const std::string& text) {
    hash.update_number(text.size());
    hash.update(text);
  };
  add(base);
  add(method);
  for (const quant::WeightSite& site : unit.weights) {
    const Tensor& weight = subgraph_at(graph, site.path).value(site.value).constant;
    add(value_label(graph, site.path, site.value));
    add(quant::to_string(site.format));
    add(site.method);
    add(fmt::format("{} {} {} {}", site.format.block, site.axis, site.reduce_axis, to_string(weight.dims())));
    if (contents) hash.update(weight.byte_span());
  }
  return hex(hash.finish());
}

}  // namespace

LayerJournal::LayerJournal(std::string folder, std::string base)
    : folder_(std::move(folder)), base_(std::move(base)) {
  make_directories(folder_);
  remove_stale_temporaries(folder_);
  read_scores();
}

std::unique_ptr<LayerJournal> LayerJournal::temporary(const std::string& path) {
  const std::string place = parent_path(path), prefix = fmt::format(".{}.", file_name(path)),
                    suffix = ".layers";
  // Those of processes that were killed.
  for (const std::string& name : list_directory(place)) {
    if (name.size() <= prefix.size() + suffix.size() || name.rfind(prefix, 0) != 0) continue;
    if (name.compare(name.size() - suffix.size(), suffix.size(), suffix) != 0) continue;
    const int process = std::atoi(name.c_str() + prefix.size());
    if (process > 0 && ::kill(process, 0) != 0 && errno == ESRCH) remove_tree(join_path(place, name));
  }
  const std::string folder = join_path(place, fmt::format("{}{}{}", prefix, ::getpid(), suffix));
  auto journal = std::make_unique<LayerJournal>(folder, "");
  journal->temporary_ = true;
  return journal;
}

std::unique_ptr<LayerJournal> LayerJournal::in_memory() {
  return std::unique_ptr<LayerJournal>(new LayerJournal());
}

LayerJournal::~LayerJournal() {
  if (!temporary_) return;
  try {
    remove_tree(folder_);
  } catch (const Error&) {
    // a folder that cannot be removed is left behind: nothing else depends on it
  }
}

void LayerJournal::read_scores() {
  const std::string path = join_path(folder_, kScores);
  if (path_exists(path)) {
    const std::string text = read_text_file(path, limits::kMaxJournalBytes);
    for (std::size_t begin = 0; begin < text.size();) {
      const std::size_t end = text.find('\n', begin);
      if (end == std::string::npos) break;  // cut short by a kill: it never happened
      const Json record = parse_json(std::string_view(text).substr(begin, end - begin), path);
      begin = end + 1;
      if (json_string(record, "base", path) == base_)
        scores_[json_string(record, "candidate", path)] = json_double(record, "score", path);
    }
    if (!text.empty() && text.back() != '\n')  // mended, not appended to half a line
      write_file_atomically(path, std::string_view(text).substr(0, text.rfind('\n') + 1));
  }
}

std::vector<quant::WeightPlan> LayerJournal::find(const std::string& key) const {
  if (folder_.empty()) {
    const auto known = memory_.find(key);
    return known == memory_.end() ? std::vector<quant::WeightPlan>() : known->second;
  }
  const std::string path = join_path(folder_, key + ".layer");
  if (!path_exists(path)) return {};
  try {
    return read_layers(path, key, true);
  } catch (const std::exception&) {
    return {};  // not sound: it is computed again
  }
}

bool LayerJournal::is_worth_keeping(const std::vector<quant::WeightPlan>& plans, double seconds) {
  for (const quant::WeightPlan& plan : plans)
    for (const Field& field : kFields)
      if (!(plan.*field.tensor).empty()) in_memory_ += (plan.*field.tensor).bytes();
  if (seconds < keep_seconds && in_memory_ < keep_bytes) return false;
  in_memory_ = 0;
  return true;
}

std::vector<quant::WeightPlan> LayerJournal::keep(const std::string& key,
                                                  const std::vector<quant::WeightPlan>& plans) {
  if (folder_.empty()) return memory_[key] = plans;
  const std::string path = join_path(folder_, key + ".layer");
  AtomicFile file(path);
  file.write(header_of(key, plans));
  std::size_t offset = 0;
  for (const quant::WeightPlan& plan : plans)
    for (const Field& field : kFields) {
      const Tensor& tensor = plan.*field.tensor;
      if (!tensor.empty()) append_tensor(file, tensor, offset);
    }
  file.commit();
  return read_layers(path, key, false);
}

std::optional<double> LayerJournal::score(const std::string& candidate) const {
  const auto it = scores_.find(candidate);
  return it == scores_.end() ? std::nullopt : std::optional<double>(it->second);
}

void LayerJournal::keep_score(const std::string& candidate, double score) {
  if (folder_.empty()) return;  // what is kept there is asked for once
  if (score_file_ == nullptr) score_file_ = std::make_unique<AppendFile>(join_path(folder_, kScores));
  scores_[candidate] = score;
  score_file_->append(dump({{"base", base_}, {"candidate", candidate}, {"score", json_number(score)}}) +
                      "\n");
}

namespace {

// Shares of a unit's work, said from any thread, as numbers of its weights.
class Ticks {
 public:
  Ticks(ProgressStep& step, std::int64_t size) : step_(step), size_(size) {}

  void advance(double share) {
    const std::lock_guard lock(mutex_);
    share_ = std::min(1.0, share_ + share);
    tell(static_cast<std::int64_t>(share_ * static_cast<double>(size_)));
  }
  void finish() { tell(size_); }

 private:
  void tell(std::int64_t done) {
    if (done <= told_) return;
    step_.advance(done - told_);
    told_ = done;
  }

  ProgressStep& step_;
  std::int64_t size_, told_ = 0;
  double share_ = 0;
  std::mutex mutex_;
};

}  // namespace

std::vector<quant::WeightPlan> plan_layers(const Graph& graph, const quant::Placement& placement,
                                           const DescribeUnit& describe, LayerJournal* journal,
                                           Progress& progress, const PlanUnit& plan, const char* what) {
  std::vector<quant::WeightPlan> plans(placement.weights.size());
  const auto size_of = [&](const quant::WeightSite& site) {
    return subgraph_at(graph, site.path).value(site.value).constant.size();
  };
  std::int64_t total = 0;
  for (const quant::WeightSite& site : placement.weights) total += size_of(site);
  ProgressStep step(progress, what, total);
  std::set<int> fused_done;
  for (std::size_t i = 0; i < plans.size(); ++i) {
    const int fused = placement.weights[i].fused;
    if (fused >= 0 && !fused_done.insert(fused).second) continue;
    check_cancelled();
    std::vector<std::size_t> members = {i};
    if (fused >= 0) members = placement.fused[static_cast<std::size_t>(fused)].weights;
    quant::Placement unit;
    for (const std::size_t member : members) unit.weights.push_back(placement.weights[member]);
    if (fused >= 0) {
      quant::FusedLayers group = placement.fused[static_cast<std::size_t>(fused)];
      for (std::size_t k = 0; k < members.size(); ++k) {
        group.weights[k] = k;
        unit.weights[k].fused = 0;
      }
      unit.fused = {std::move(group)};
    }
    std::int64_t size = 0;
    for (const quant::WeightSite& site : unit.weights) size += size_of(site);
    Ticks ticks(step, size);
    std::vector<quant::WeightPlan> made;
    const std::string key =
        journal != nullptr ? key_of(graph, unit, describe(unit), journal->base(), !journal->is_temporary())
                           : "";
    if (journal != nullptr && !journal->is_temporary()) made = journal->find(key);
    if (made.size() == members.size()) {
      step.skip(size);
    } else {
      const auto start = std::chrono::steady_clock::now();
      made = plan(unit, [&](double share) { ticks.advance(share); });
      PARE_ASSERT(made.size() == members.size());
      const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
      if (journal != nullptr && journal->is_worth_keeping(made, seconds)) made = journal->keep(key, made);
      ticks.finish();
    }
    for (std::size_t k = 0; k < members.size(); ++k) plans[members[k]] = std::move(made[k]);
  }
  return plans;
}

}  // namespace pare
