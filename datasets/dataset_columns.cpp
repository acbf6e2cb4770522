// Which column feeds which input of the model, and whether it fits.
#include <algorithm>
#include <numeric>

#include "datasets/dataset.h"
#include "engine/base/error.h"
#include "engine/numeric/convert.h"

namespace pare {

namespace {

// The shape that a layout key makes of a sample; for hints.
bool transposed_fits(const Dims& sample, const Shape& wanted, bool to_nchw) {
  if (sample.size() != 3) return false;
  const Dims moved =
      to_nchw ? Dims{1, sample[2], sample[0], sample[1]} : Dims{1, sample[1], sample[2], sample[0]};
  Shape shape = wanted;
  if (shape.ranked && !shape.dims.empty()) shape.dims[0] = Dim::of(1);
  return shape.fits(moved);
}

bool fits_sample(const Shape& wanted, const Dims& sample) {
  if (!wanted.ranked) return true;
  if (wanted.dims.size() != sample.size() + 1) return false;
  for (std::size_t d = 0; d < sample.size(); ++d)
    if (wanted.dims[d + 1].known() && wanted.dims[d + 1].value != sample[d]) return false;
  return true;
}

std::string with_count(const Dims& sample) {
  std::string text = "[N";
  for (const std::int64_t size : sample) text += "," + std::to_string(size);
  return text + "]";
}

std::string list_names(const std::vector<InputSpec>& inputs) {
  std::string all;
  for (const InputSpec& input : inputs) all += (all.empty() ? "'" : ", '") + input.name + "'";
  return all;
}

void check_name(const std::string& input, const std::vector<InputSpec>& model) {
  std::vector<const char*> known;
  for (const InputSpec& wanted : model) known.push_back(wanted.name.c_str());
  if (model.empty() || std::find(known.begin(), known.end(), input) != known.end()) return;
  const std::string near = nearest_word(input, known.data(), known.size());
  throw make_error(ErrorCode::kUsage, "the model has no input '{}'; it has {}", input, list_names(model))
      .hint(near.empty() ? "" : fmt::format("did you mean '{}'?", near));
}

// All elements are `value`, rounded to a floating-point type. Error kUsage when another type has no such
// value.
Tensor filled(const std::string& input, DType type, const Dims& dims, double value) {
  const Tensor wide = Tensor::from(DType::kF64, dims,
                                   std::vector<double>(static_cast<std::size_t>(element_count(dims)), value));
  Tensor tensor = Tensor::allocate(type, dims), back = Tensor::allocate(DType::kF64, dims);
  convert(wide.view(), tensor.view());
  convert(tensor.view(), back.view());
  if (!is_float(type) && !equal_bytes(back, wide))
    throw make_error(ErrorCode::kUsage, "constants: '{}' is {}, which cannot hold {}", input, name(type),
                     value)
        .hint("give a value of the input's type");
  return tensor;
}

}  // namespace

void Dataset::choose_columns(const std::vector<InputSpec>& model) {
  const std::vector<Source::Column>& columns = source_->columns();
  std::vector<int> data;  // columns that are not the labels
  for (std::size_t c = 0; c < columns.size(); ++c)
    if (columns[c].name.empty() || (columns[c].name != spec_.labels && columns[c].name != spec_.width_from))
      data.push_back(static_cast<int>(c));
  if (data.empty())
    throw make_error(ErrorCode::kUsage, "there is nothing in it but the labels")
        .hint("name a file that also holds the inputs");

  const auto key_for = [&](const std::string& input) {
    for (const auto& pair : spec_.inputs)
      if (pair.first == input) return pair.second;
    return input;
  };
  if (!spec_.input.empty()) check_name(spec_.input, model);
  for (const auto& pair : spec_.inputs) check_name(pair.first, model);

  if (model.empty()) {
    for (const int c : data) {
      const Source::Column& column = columns[static_cast<std::size_t>(c)];
      InputSpec wanted{column.name.empty() ? (spec_.input.empty() ? "input" : spec_.input) : column.name,
                       DType::kUndefined, Shape{}};
      columns_.emplace_back();
      columns_.back().source = c;
      check_column(column, wanted);
    }
  }
  const auto fed = std::count_if(model.begin(), model.end(),
                                 [&](const InputSpec& wanted) { return !is_fixed(wanted.name); });
  for (const InputSpec& wanted : model) {
    if (is_fixed(wanted.name)) {
      add_fixed(wanted);
      continue;
    }
    const std::string key = key_for(wanted.name);
    int found = -1;
    for (const int c : data)
      if (columns[static_cast<std::size_t>(c)].name == key) found = c;
    // One array feeds the one input, or the one that was named.
    if (found < 0 && data.size() == 1 && spec_.inputs.empty() && (fed == 1 || wanted.name == spec_.input))
      found = data[0];
    if (found < 0) {
      std::string keys;
      for (const int c : data)
        keys += (keys.empty() ? "'" : ", '") + columns[static_cast<std::size_t>(c)].name + "'";
      throw make_error(ErrorCode::kUsage, "nothing in it feeds the model's input '{}' {} {}; it holds {}",
                       wanted.name, name(wanted.dtype), to_string(wanted.shape),
                       keys == "''" ? "one array without a name" : keys)
          .hint(fed > 1 && columns.size() == 1 ? "a model with several inputs needs a .npz with one array an "
                                                 "input, or feedback= (a state), or "
                                                 "constants="
                                               : fmt::format("map it: inputs=[{}:KEY]", wanted.name));
    }
    columns_.emplace_back();
    columns_.back().source = found;
    check_column(columns[static_cast<std::size_t>(found)], wanted);
  }
  by_name_.resize(inputs_.size());
  std::iota(by_name_.begin(), by_name_.end(), std::size_t{0});
  std::sort(by_name_.begin(), by_name_.end(),
            [&](std::size_t a, std::size_t b) { return inputs_[a].name < inputs_[b].name; });
}

// What the keys feedback and constants name is there, once, and in an order that means something.
void Dataset::check_pairs(const std::vector<InputSpec>& model) const {
  std::vector<std::string> names;
  for (const auto& pair : spec_.feedback) names.push_back(pair.first);
  for (const auto& pair : spec_.constants) names.push_back(pair.first);
  for (std::size_t i = 0; i < names.size(); ++i) {
    check_name(names[i], model);
    if (std::count(names.begin(), names.end(), names[i]) > 1 || names[i] == spec_.input)
      throw make_error(ErrorCode::kUsage, "the model's input '{}' is fed twice", names[i])
          .hint("name each input once");
  }
  if (!spec_.feedback.empty() && spec_.shuffle)
    throw make_error(ErrorCode::kUsage, "shuffle and feedback contradict each other: a state follows time")
        .hint("leave shuffle out");
}

bool Dataset::is_fixed(const std::string& input) const {
  const auto named = [&](const auto& pair) { return pair.first == input; };
  return std::any_of(spec_.feedback.begin(), spec_.feedback.end(), named) ||
         std::any_of(spec_.constants.begin(), spec_.constants.end(), named);
}

// A state that begins with zeros, or a constant: the model's shape, one where it does not say.
void Dataset::add_fixed(const InputSpec& wanted) {
  const auto constant = std::find_if(spec_.constants.begin(), spec_.constants.end(),
                                     [&](const auto& pair) { return pair.first == wanted.name; });
  const char* key = constant == spec_.constants.end() ? "feedback" : "constants";
  if (!wanted.shape.ranked)
    throw make_error(ErrorCode::kUnsupported, "{}: the model does not say what shape '{}' has", key,
                     wanted.name)
        .hint("pare surgeon set-shape gives inputs their sizes");
  Column column;
  column.source = -1;
  column.is_state = constant == spec_.constants.end();
  InputSpec seen = wanted;
  Dims dims;
  for (Dim& dim : seen.shape.dims) {
    if (!dim.known()) {
      // The state has a row a sample, and the samples of one stream come one after the other.
      if (column.is_state && fixed_batch_ <= 1) fixed_batch_ = 1;
      dim.value = 1;
    }
    dims.push_back(dim.value);
  }
  const double value = column.is_state ? 0 : constant->second;
  column.fixed = filled(wanted.name, wanted.dtype, dims, value);
  columns_.push_back(std::move(column));
  inputs_.push_back(std::move(seen));
}

void Dataset::load_widths() {
  widths_ = load_labels(spec_.width_from, *source_).numbers;
  if (widths_.empty())
    throw make_error(ErrorCode::kUsage, "width_from: '{}' holds texts, and widths are whole numbers",
                     spec_.width_from)
        .hint("name an input of whole numbers");
}

void Dataset::check_column(const Source::Column& column, const InputSpec& wanted) {
  DatasetSpec spec = spec_;
  const bool images = source_->images();
  const bool into_float = wanted.dtype == DType::kUndefined || is_float(wanted.dtype);
  if (images) {  // always [H,W,C]; the key says what the model wants
    if (spec.layout == DataLayout::kNchw) spec.layout = DataLayout::kNhwcToNchw;
    if (spec.layout == DataLayout::kNchwToNhwc || (spec.layout == DataLayout::kUnset && !into_float))
      spec.layout = DataLayout::kNhwc;
  } else if ((!spec.channels.empty() || spec.alpha || !widths_.empty()) &&
             spec.layout == DataLayout::kUnset) {
    throw make_error(ErrorCode::kUsage, "{} without a layout",
                     !spec.channels.empty() ? "channels=" + spec.channels
                     : spec.alpha           ? "alpha"
                                            : "width_from")
        .hint("add layout=nchw, nhwc or nhwc_to_nchw");
  } else if (spec.channels == "gray") {
    throw make_error(ErrorCode::kUsage, "channels=gray is for image folders").hint("leave channels out");
  }
  if (!images && (!spec.resize.empty() || !spec.crop.empty()))
    throw make_error(ErrorCode::kUsage, "resize and crop are for image folders; '{}' is an array", spec.path)
        .hint("leave them out, or give a folder of images");

  const std::string both =
      fmt::format("'{}' is {} {} in the data, but the model's input is {} {}", wanted.name,
                  name(column.dtype), with_count(column.sample), name(wanted.dtype), to_string(wanted.shape));
  const bool float_model = is_float(wanted.dtype);
  const bool image = spec.layout != DataLayout::kUnset && into_float && column.sample.size() >= 2;
  const bool image_raw = spec.layout != DataLayout::kUnset && images;

  // Raw pixels: what turns them into the model's numbers must be said, never guessed.
  const bool pixels = column.dtype == DType::kU8 && column.sample.size() >= 2;
  if (float_model && pixels && (spec.layout == DataLayout::kUnset || !spec.has_arithmetic())) {
    std::string keys;
    if (spec.layout == DataLayout::kUnset) {
      const bool last = transposed_fits(column.sample, wanted.shape, true);
      keys += last || images ? "layout=nhwc_to_nchw" : "layout=nchw (or nhwc, nhwc_to_nchw, nchw_to_nhwc)";
    }
    if (!spec.has_arithmetic()) keys += std::string(keys.empty() ? "" : ",") + "scale=1/255";
    throw make_error(ErrorCode::kUsage, "raw uint8 pixels: {}", both)
        .hint(fmt::format("add {} (and mean=[...],std=[...] as the model was trained with)", keys));
  }

  const bool arithmetic = spec.has_arithmetic() && into_float;
  Preprocess preprocess = make_preprocess(spec, column.dtype, column.sample, image || image_raw, arithmetic);
  Column& mine = columns_.back();
  Dims sample = preprocess.sample_out;
  if (!widths_.empty() && (image || image_raw)) {
    const std::size_t axis = width_axis(preprocess);
    mine.cut = true;
    for (std::size_t row = 0; row < widths_.size(); ++row) {
      if (mine.by_width.count(widths_[row]) != 0) continue;
      Dims narrow = column.sample;
      if (widths_[row] < 1 || widths_[row] > narrow[axis])
        throw make_error(ErrorCode::kUsage, "width_from gives {} for sample {}, and a sample is {} wide",
                         widths_[row], row, narrow[axis])
            .hint("a width lies between 1 and the width of what is stored");
      narrow[axis] = widths_[row];
      mine.by_width[widths_[row]] = make_preprocess(spec, column.dtype, narrow, true, arithmetic);
    }
    sample = mine.by_width.begin()->second.sample_out;
    for (const auto& entry : mine.by_width)
      if (!fits_sample(wanted.shape, entry.second.sample_out)) sample = entry.second.sample_out;
  }
  if (wanted.dtype != DType::kUndefined && preprocess.to != wanted.dtype) {
    std::string hint = fmt::format("save the data as {}", name(wanted.dtype));
    if (wanted.dtype == DType::kF32) hint += ", or add scale=1 (or the right scale) to have it converted";
    if (arithmetic && float_model)
      hint =
          "preprocessing gives float32; `pare surgeon convert-precision` can make the model's inputs float32";
    throw make_error(ErrorCode::kUsage, "wrong type{}: {}",
                     arithmetic ? " (after preprocessing: float32)" : "", both)
        .hint(hint);
  }
  if (!fits_sample(wanted.shape, sample)) {
    std::string hint = "the first dimension counts samples, the others must agree";
    if (spec.layout == DataLayout::kUnset && transposed_fits(column.sample, wanted.shape, true))
      hint = "the channels stand last in the data and first in the model: add layout=nhwc_to_nchw";
    else if (spec.layout == DataLayout::kUnset && transposed_fits(column.sample, wanted.shape, false))
      hint = "the channels stand first in the data and last in the model: add layout=nchw_to_nhwc";
    else if (spec.layout == DataLayout::kNchw && transposed_fits(column.sample, wanted.shape, true))
      hint = "the channels stand last in the data and first in the model: layout is nhwc_to_nchw";
    else if (spec.layout == DataLayout::kNhwc && transposed_fits(column.sample, wanted.shape, false))
      hint = "the channels stand first in the data and last in the model: layout is nchw_to_nhwc";
    else if (images)
      hint = "resize=[height,width] or crop make images of another size";
    else if (wanted.shape.ranked && wanted.shape.dims.size() == sample.size() + 2)
      hint = "the data has one dimension less: the first counts samples, so one sample alone is array[None]";
    throw make_error(ErrorCode::kUsage, "wrong shape: {}{}", both,
                     sample == column.sample
                         ? ""
                         : fmt::format(" (after layout={}: {})", name(spec.layout), with_count(sample)))
        .hint(hint);
  }
  if (wanted.shape.ranked) {
    // One symbol is one number in the whole model.
    for (std::size_t d = 0; d < sample.size(); ++d) {
      const std::string& symbol = wanted.shape.dims[d + 1].symbol;
      for (const InputSpec& other : inputs_)
        for (std::size_t e = 1; !symbol.empty() && e < other.shape.dims.size(); ++e)
          if (other.shape.dims[e].symbol == symbol && other.shape.dims[e].value != sample[d])
            throw make_error(ErrorCode::kUsage, "wrong shape: '{}' is {} in '{}', but {} in '{}'", symbol,
                             sample[d], wanted.name, other.shape.dims[e].value, other.name)
                .hint("dimensions of one name are of one size: cut or pad one of the inputs");
    }
    if (wanted.shape.dims[0].known()) {
      if (fixed_batch_ > 0 && fixed_batch_ != wanted.shape.dims[0].value)
        throw make_error(ErrorCode::kUnsupported,
                         "the model's inputs have different first dimensions ({} and {})", fixed_batch_,
                         wanted.shape.dims[0].value)
            .hint("pare surgeon set-shape makes them one");
      fixed_batch_ = wanted.shape.dims[0].value;
      if (fixed_batch_ == 0)
        throw make_error(ErrorCode::kUsage, "the model takes no samples: '{}' is {}", wanted.name,
                         to_string(wanted.shape))
            .hint("the first size of an input counts samples; pare surgeon set-shape opens it");
    }
  }

  InputSpec seen{wanted.name, preprocess.to, Shape{}};
  seen.shape.ranked = true;
  seen.shape.dims.push_back(wanted.shape.ranked ? wanted.shape.dims[0] : Dim{});
  for (std::size_t d = 0; d < sample.size(); ++d) {
    Dim dim = mine.by_width.size() > 1 && sample[d] != mine.by_width.rbegin()->second.sample_out[d]
                  ? Dim{}
                  : Dim::of(sample[d]);
    if (wanted.shape.ranked) dim.symbol = wanted.shape.dims[d + 1].symbol;  // value and name together
    seen.shape.dims.push_back(dim);
  }
  mine.bytes_in = byte_count(column.dtype, column.sample);
  mine.preprocess = std::move(preprocess);
  inputs_.push_back(std::move(seen));
}

}  // namespace pare
