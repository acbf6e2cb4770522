#include "eval/scorer.h"

#include <algorithm>
#include <cmath>

#include "engine/base/error.h"
#include "eval/metric_table.h"

namespace pare {

namespace {

double worse(double a, double b, bool higher_is_better) {
  if (std::isnan(a) || std::isnan(b)) return std::nan("");
  return higher_is_better ? std::min(a, b) : std::max(a, b);
}

}  // namespace

Scorer::Scorer(const std::vector<std::string>& metrics, const Dataset& data,
               const std::vector<std::string>& outputs, bool compared)
    : metrics_(metrics), compared_(compared), threshold_(data.spec().threshold.value_or(0.5)) {
  if (wants("cer")) text_.emplace(data.spec());
  if (data.has_tokens() && (wants("perplexity") || wants("kl") || wants("token_agreement")))
    tokens_.emplace();
  for (std::size_t i = 0; i < data.inputs().size(); ++i)
    if (data.inputs()[i].name == "attention_mask") mask_ = static_cast<int>(i);
  if (wants("box_agreement") && compared) boxes_.emplace(data.spec().boxes, outputs);
}

void Scorer::add(const std::vector<Tensor>& outputs, const Batch& batch, const std::vector<Tensor>* reference,
                 ThreadPool* pool) {
  if (wants("top1")) top1_.add(outputs.at(0).view(), batch.labels.view());
  if (wants("top5")) top5_.add(outputs.at(0).view(), batch.labels.view());
  if (tokens_)
    tokens_->add(outputs.at(0), batch.targets, reference == nullptr ? nullptr : reference->data(), pool);
  if (text_) text_->add(to_float32(outputs.at(0).view()).view(), batch.texts);
  if (reference != nullptr) compare(outputs, batch, *reference);
}

void Scorer::compare(const std::vector<Tensor>& outputs, const Batch& batch,
                     const std::vector<Tensor>& reference) {
  outputs_.resize(outputs.size());
  for (std::size_t i = 0; i < outputs.size(); ++i) outputs_[i].add(reference[i].view(), outputs[i].view());
  if (wants("top1_agreement"))
    top1_agreement_.add(to_float32(outputs.at(0).view()).view(),
                        Tensor::ints(largest_outputs(reference.at(0))).view());
  if (boxes_) boxes_->add(reference, outputs);
  if (wants("embedding_cosine")) {
    const bool masked = mask_ >= 0 && static_cast<std::size_t>(mask_) < batch.inputs.size() &&
                        batch.inputs[static_cast<std::size_t>(mask_)].dtype() == DType::kI64;
    embeddings_.add(reference.at(0), outputs.at(0),
                    masked ? &batch.inputs[static_cast<std::size_t>(mask_)] : nullptr);
  }
  if (wants("frame_agreement")) {
    const Tensor a = to_float32(reference.at(0).view()), b = to_float32(outputs.at(0).view());
    const auto limit = static_cast<float>(threshold_);
    frames_ += a.size();
    for (std::int64_t i = 0; i < a.size(); ++i) {
      const float r = a.as<float>()[i], c = b.as<float>()[i];
      frames_alike_ += !std::isnan(c) && (r > limit) == (c > limit) ? 1 : 0;
    }
  }
}

MetricValues Scorer::values() const {
  MetricValues out;
  if (wants("top1")) out["top1"] = top1_.share();
  if (wants("top5")) out["top5"] = top5_.share();
  if (text_) out["cer"] = text_->rate();
  if (wants("perplexity") && tokens_) out["perplexity"] = tokens_->perplexity();
  if (!compared_ || outputs_.empty()) return out;
  if (wants("kl") && tokens_) out["kl"] = tokens_->kl();
  if (wants("token_agreement") && tokens_) out["token_agreement"] = tokens_->agreement();
  if (wants("top1_agreement")) out["top1_agreement"] = top1_agreement_.share();
  if (boxes_) out["box_agreement"] = boxes_->share();
  if (wants("embedding_cosine")) out["embedding_cosine"] = embeddings_.mean();
  if (wants("frame_agreement"))
    out["frame_agreement"] =
        frames_ == 0 ? 0 : static_cast<double>(frames_alike_) / static_cast<double>(frames_);
  // Of several outputs the worst one counts: an average would hide it.
  double sqnr = outputs_[0].sqnr_db(), cosine = outputs_[0].cosine(), max_abs = outputs_[0].max_abs();
  for (const Comparison& c : outputs_) {
    sqnr = worse(sqnr, c.sqnr_db(), true);
    cosine = worse(cosine, c.cosine(), true);
    max_abs = worse(max_abs, c.max_abs(), false);
  }
  if (wants("output_sqnr_db")) out["output_sqnr_db"] = sqnr;
  if (wants("output_cosine")) out["output_cosine"] = cosine;
  if (wants("max_abs")) out["max_abs"] = max_abs;
  return out;
}

std::int64_t Scorer::not_finite(bool reference) const {
  std::int64_t sum = 0;
  for (const Comparison& c : outputs_) sum += reference ? c.not_finite_reference() : c.not_finite_candidate();
  return sum;
}

bool Scorer::wants(const char* name) const {
  return std::find(metrics_.begin(), metrics_.end(), name) != metrics_.end();
}

void check_metrics(const std::vector<std::string>& metrics, const Dataset& data, bool reference) {
  const std::vector<const char*> names = metric_names();
  for (const std::string& name : metrics) {
    const MetricInfo* info = find_metric(name);
    if (info == nullptr) {
      throw make_error(ErrorCode::kUsage, "there is no metric '{}'", name).hint(metric_hint(name));
    }
    const auto refuse = [&](const char* what, const char* hint) {
      throw make_error(ErrorCode::kUsage, "metric {} needs {}, and the data has none", name, what)
          .at(data.spec().path)
          .hint(hint);
    };
    if (!info->implemented) {
      std::string all;
      for (const MetricInfo& other : metric_table())
        if (other.implemented) all += (all.empty() ? "" : ", ") + std::string(other.name);
      throw make_error(ErrorCode::kUnsupported, "this build does not compute the metric {}", name)
          .hint("it has " + all);
    }
    if (info->needs == MetricNeeds::kLabels && !data.has_labels())
      refuse(data.has_texts() ? "class numbers as labels" : "labels", "add labels=FILE to the data");
    if (info->needs == MetricNeeds::kTexts && !data.has_texts())
      refuse(data.has_labels() ? "texts as labels" : "labels",
             "add labels=FILE.json:KEY or labels=FILE.txt to the data");
    if (info->needs == MetricNeeds::kTexts && data.spec().alphabet.empty())
      refuse("alphabet", "add alphabet=FILE to the data, one character a line");
    if (info->needs == MetricNeeds::kBoxes && !data.spec().boxes.given())
      refuse("description of boxes",
             "add boxes: {scores: OUTPUT, boxes: OUTPUT} to the data set's YAML file");
    if (info->needs == MetricNeeds::kTokens && !data.has_tokens())
      refuse("text", "give a .txt or .jsonl file as data, and a checkpoint or tokenizer=FOLDER with it");
    if (!info->absolute && !reference)
      throw make_error(ErrorCode::kUsage, "metric {} compares with a reference, and there is none", name)
          .hint("give a reference model");
  }
}

std::vector<std::int64_t> largest_outputs(const Tensor& outputs) {
  const Tensor floats = to_float32(outputs.view());
  const std::int64_t n = floats.dims().empty() ? 1 : floats.dims()[0];
  const std::int64_t classes = n == 0 ? 0 : floats.size() / n;
  std::vector<std::int64_t> best(static_cast<std::size_t>(n), 0);
  for (std::int64_t i = 0; i < n; ++i) {
    const float* row = floats.as<float>() + i * classes;
    for (std::int64_t j = 1; j < classes; ++j)
      if (row[j] > row[best[static_cast<std::size_t>(i)]]) best[static_cast<std::size_t>(i)] = j;
  }
  return best;
}

}  // namespace pare
