#include "eval/task/boxes.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "engine/base/error.h"
#include "eval/compare.h"

namespace pare {

namespace {

double area(const Box& b) {
  return std::max(0.0, static_cast<double>(b.x1) - b.x0) * std::max(0.0, static_cast<double>(b.y1) - b.y0);
}

Box from_numbers(const float* n, const std::string& form, float x, float y) {
  if (form == "xyxy") return {n[0] + x, n[1] + y, n[2] + x, n[3] + y};
  if (form == "yxyx") return {n[1] + x, n[0] + y, n[3] + x, n[2] + y};
  return {n[0] - n[2] / 2 + x, n[1] - n[3] / 2 + y, n[0] + n[2] / 2 + x, n[1] + n[3] / 2 + y};
}

}  // namespace

double intersection_over_union(const Box& a, const Box& b) {
  const Box both{std::max(a.x0, b.x0), std::max(a.y0, b.y0), std::min(a.x1, b.x1), std::min(a.y1, b.y1)};
  const double shared = area(both), all = area(a) + area(b) - shared;
  return shared > 0 && all > 0 ? shared / all : 0;
}

BoxAgreement::BoxAgreement(const BoxSpec& spec, const std::vector<std::string>& outputs) : spec_(spec) {
  const auto find = [&](const std::string& name) {
    const auto at = std::find(outputs.begin(), outputs.end(), name);
    if (at != outputs.end()) return static_cast<std::size_t>(at - outputs.begin());
    std::vector<const char*> known;
    for (const std::string& output : outputs) known.push_back(output.c_str());
    const std::string near = nearest_word(name, known.data(), known.size());
    std::string all;
    for (const char* output : known) all += (all.empty() ? "" : ", ") + std::string(output);
    throw make_error(ErrorCode::kUsage, "boxes: the model has no output '{}'", name)
        .hint(near.empty() ? "its outputs are " + all : fmt::format("did you mean '{}'?", near));
  };
  for (const std::string& name : spec.scores) scores_.push_back(find(name));
  for (const std::string& name : spec.boxes) places_.push_back(find(name));
  if (scores_.size() != places_.size() || scores_.empty())
    throw make_error(ErrorCode::kUsage, "boxes: {} outputs with scores, {} with boxes; they go in pairs",
                     scores_.size(), places_.size())
        .hint("name as many outputs under boxes.boxes as under boxes.scores");
}

std::vector<Box> BoxAgreement::decode(const std::vector<Tensor>& outputs, std::int64_t index) const {
  std::vector<Box> found;
  for (std::size_t k = 0; k < scores_.size(); ++k) {
    const Tensor scores = to_float32(outputs.at(scores_[k]).view()),
                 boxes = to_float32(outputs.at(places_[k]).view());
    const std::int64_t samples = scores.dims().empty() ? 0 : scores.dims()[0];
    const std::int64_t count = samples > 0 ? scores.size() / samples : 0;
    const std::int64_t numbers = boxes.dims().empty() ? 0 : boxes.dims().back();
    std::int64_t per_row = 1, cells_wide = 1, per_cell = 1, stride = 0;
    if (numbers < 4 || boxes.dims()[0] != samples || boxes.size() != samples * count * numbers)
      throw make_error(ErrorCode::kUsage, "boxes: scores are {} and boxes are {}", to_string(scores.dims()),
                       to_string(boxes.dims()))
          .hint("scores [samples,n] or [samples,n,1], boxes [samples,n,4] or more numbers a box");
    if (!spec_.strides.empty()) {
      stride = spec_.strides.at(k);
      const std::int64_t height = spec_.size.front() / stride, width = spec_.size.back() / stride;
      if (height < 1 || width < 1 || count % (height * width) != 0)
        throw make_error(ErrorCode::kUsage, "boxes: {} boxes are not spread evenly over {} x {} cells", count,
                         height, width)
            .hint("look at strides and size");
      per_cell = count / (height * width);
      cells_wide = width;
      per_row = per_cell * cells_wide;
    }
    for (std::int64_t i = 0; i < count; ++i) {
      float score = scores.as<float>()[index * count + i];
      if (spec_.sigmoid.value_or(false)) score = 1 / (1 + std::exp(-score));
      if (!(score >= static_cast<float>(spec_.threshold))) continue;
      float x = 0, y = 0;
      if (stride > 0) {
        x = (static_cast<float>(i % per_row / per_cell) + 0.5f) * static_cast<float>(stride);
        y = (static_cast<float>(i / per_row) + 0.5f) * static_cast<float>(stride);
      }
      found.push_back(from_numbers(boxes.as<float>() + (index * count + i) * numbers, spec_.form, x, y));
      found.back().score = score;
    }
  }
  std::stable_sort(found.begin(), found.end(), [](const Box& a, const Box& b) { return a.score > b.score; });
  if (found.size() > kMostBoxes) found.resize(kMostBoxes);
  std::vector<Box> kept;
  for (const Box& box : found)
    if (std::none_of(kept.begin(), kept.end(),
                     [&](const Box& other) { return intersection_over_union(box, other) > spec_.nms; }))
      kept.push_back(box);
  return kept;
}

void BoxAgreement::add(const std::vector<Tensor>& reference, const std::vector<Tensor>& candidate) {
  const Dims& dims = reference.at(scores_[0]).dims();
  for (std::int64_t i = 0; i < (dims.empty() ? 0 : dims[0]); ++i) {
    const std::vector<Box> a = decode(reference, i), b = decode(candidate, i);
    struct Pair {
      double iou;
      std::size_t a, b;
    };
    std::vector<Pair> near;
    for (std::size_t j = 0; j < a.size(); ++j)
      for (std::size_t k = 0; k < b.size(); ++k) {
        const double iou = intersection_over_union(a[j], b[k]);
        if (iou >= spec_.iou && iou > 0) near.push_back({iou, j, k});
      }
    std::stable_sort(near.begin(), near.end(), [](const Pair& l, const Pair& r) { return l.iou > r.iou; });
    std::vector<bool> taken_a(a.size(), false), taken_b(b.size(), false);
    for (const Pair& pair : near) {
      if (taken_a[pair.a] || taken_b[pair.b]) continue;
      taken_a[pair.a] = taken_b[pair.b] = true;
      ++pairs_;
    }
    boxes_ += static_cast<std::int64_t>(a.size() + b.size());
  }
}

}  // namespace pare
