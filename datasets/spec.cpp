#include "datasets/spec.h"

#include <charconv>
#include <cmath>
#include <set>

#include "engine/base/error.h"
#include "engine/base/paths.h"

namespace pare {

const char* const kDatasetKeys[] = {
    "kind",          "input",     "inputs",   "labels",   "layout",    "scale",      "mean",
    "std",           "resize",    "crop",     "channels", "alpha",     "width_from", "frame",
    "context",       "rate",      "feedback", "reset",    "constants", "alphabet",   "blank",
    "ignore_spaces", "threshold", "skip",     "samples",  "batch",     "shuffle",    "max_nonfinite",
    "window",        "stride",    "bos",      "join",     "field",     "tokenizer"};
const std::size_t kDatasetKeyCount = std::size(kDatasetKeys);

namespace {

std::string trimmed(const std::string& text) {
  const auto first = text.find_first_not_of(" \t");
  if (first == std::string::npos) return "";
  return text.substr(first, text.find_last_not_of(" \t") - first + 1);
}

// At commas outside of brackets.
std::vector<std::string> split_list(const std::string& text) {
  std::vector<std::string> parts;
  std::string part;
  int depth = 0;
  for (const char c : text) {
    if (c == '[' || c == '{') ++depth;
    if (c == ']' || c == '}') --depth;
    if (c == ',' && depth == 0) {
      parts.push_back(trimmed(part));
      part.clear();
    } else {
      part += c;
    }
  }
  parts.push_back(trimmed(part));
  return parts;
}

// "[a,b]", "{a,b}" or a bare "a".
std::vector<std::string> list_of(const std::string& text) {
  const std::string whole = trimmed(text);
  if (whole.size() >= 2 &&
      ((whole.front() == '[' && whole.back() == ']') || (whole.front() == '{' && whole.back() == '}')))
    return split_list(whole.substr(1, whole.size() - 2));
  return split_list(whole);
}

double parse_decimal(const std::string& key, const std::string& text) {
  double value = 0;
  const char* end = text.data() + text.size();
  const auto result = std::from_chars(text.data(), end, value);
  if (result.ec != std::errc() || result.ptr != end || text.empty() || !std::isfinite(value))
    throw make_error(ErrorCode::kUsage, "data set key '{}': '{}' is not a number", key, text)
        .hint("write a decimal number or a fraction such as 1/255");
  return value;
}

std::int64_t parse_count(const std::string& key, const std::string& text, std::int64_t lowest) {
  std::int64_t value = 0;
  const char* end = text.data() + text.size();
  const auto result = std::from_chars(text.data(), end, value);
  if (result.ec != std::errc() || result.ptr != end || value < lowest)
    throw make_error(ErrorCode::kUsage, "data set key '{}': '{}' is not a whole number of at least {}", key,
                     text, lowest)
        .hint("for example " + key + "=" + std::to_string(std::max<std::int64_t>(lowest, 1)));
  return value;
}

std::vector<std::int64_t> parse_sides(const std::string& key, const std::string& text) {
  std::vector<std::int64_t> sides;
  for (const std::string& part : list_of(text)) sides.push_back(parse_count(key, part, 1));
  if (sides.size() > 2)
    throw make_error(ErrorCode::kUsage, "data set key '{}' has {} numbers", key, sides.size())
        .hint("give one side, or [height,width]");
  return sides;
}

// "[a:b,c:d]" as pairs. Names of inputs may hold colons ("input:0"), what stands behind them seldom does.
std::vector<std::pair<std::string, std::string>> pairs_of(const std::string& key, const std::string& value,
                                                          const char* form) {
  std::vector<std::pair<std::string, std::string>> pairs;
  for (const std::string& part : list_of(value)) {
    const auto colon = part.rfind(':');
    if (colon == std::string::npos || colon == 0 || colon + 1 == part.size())
      throw make_error(ErrorCode::kUsage, "data set key '{}': '{}' is no pair", key, part)
          .hint(fmt::format("write {}=[{},...]", key, form));
    pairs.emplace_back(trimmed(part.substr(0, colon)), trimmed(part.substr(colon + 1)));
  }
  return pairs;
}

std::string one_of(const std::string& key, const std::string& value, const std::vector<const char*>& words) {
  std::string all;
  for (const char* word : words) {
    if (value == word) return value;
    all += (all.empty() ? "" : ", ") + std::string(word);
  }
  const std::string near = nearest_word(value, words.data(), words.size());
  throw make_error(ErrorCode::kUsage, "data set key '{}': '{}' is none of {}", key, value, all)
      .hint(near.empty() ? "" : fmt::format("did you mean '{}'?", near));
}

constexpr std::pair<const char*, DataLayout> kLayouts[] = {{"nchw", DataLayout::kNchw},
                                                           {"nhwc", DataLayout::kNhwc},
                                                           {"nhwc_to_nchw", DataLayout::kNhwcToNchw},
                                                           {"nchw_to_nhwc", DataLayout::kNchwToNhwc}};

}  // namespace

double parse_number(const std::string& key, const std::string& text) {
  const auto slash = text.find('/');
  if (slash == std::string::npos) return parse_decimal(key, trimmed(text));
  const double above = parse_decimal(key, trimmed(text.substr(0, slash)));
  const double below = parse_decimal(key, trimmed(text.substr(slash + 1)));
  if (below == 0)
    throw make_error(ErrorCode::kUsage, "data set key '{}': '{}' divides by zero", key, text)
        .hint("for example 1/255");
  return above / below;
}

bool split_file_key(const std::string& text, std::string& file, std::string& key) {
  const auto at = text.rfind(".json:");
  if (at == std::string::npos || at == 0 || at + 6 == text.size()) return false;
  file = text.substr(0, at + 5);
  key = text.substr(at + 6);
  return true;
}

bool is_text(const DatasetSpec& spec) {
  if (!spec.kind.empty()) return spec.kind == "text";
  const std::string extension = file_extension(spec.path);
  return extension == ".txt" || extension == ".jsonl";
}

const char* name(DataLayout layout) {
  for (const auto& entry : kLayouts)
    if (entry.second == layout) return entry.first;
  return "";
}

void set_dataset_key(DatasetSpec& spec, const std::string& key, const std::string& value) {
  const auto numbers = [&] {
    std::vector<double> all;
    for (const std::string& part : list_of(value)) all.push_back(parse_number(key, part));
    return all;
  };
  if (key == "kind") {
    spec.kind = one_of(key, value, {"npy", "npz", "hdf5", "images", "audio", "text", "synthetic"});
  } else if (key == "input") {
    spec.input = value;
  } else if (key == "inputs") {
    for (auto& pair : pairs_of(key, value, "model_input:key_in_file")) spec.inputs.push_back(std::move(pair));
  } else if (key == "labels") {
    spec.labels = value;
  } else if (key == "layout") {
    const std::string word = one_of(key, value, {"nchw", "nhwc", "nhwc_to_nchw", "nchw_to_nhwc"});
    for (const auto& entry : kLayouts)
      if (word == entry.first) spec.layout = entry.second;
  } else if (key == "scale") {
    spec.scale = parse_number(key, value);
    if (*spec.scale == 0)
      throw make_error(ErrorCode::kUsage, "data set key 'scale' is 0: all inputs would be the same")
          .hint("for example scale=1/255, or leave it away");
  } else if (key == "mean") {
    spec.mean = numbers();
  } else if (key == "std") {
    spec.std = numbers();
    for (const double number : spec.std)
      if (number == 0)
        throw make_error(ErrorCode::kUsage, "data set key 'std' has a 0, by which would be divided")
            .hint("the standard deviations that the model was trained with, as in std=[0.229,0.224,0.225]");
  } else if (key == "resize") {
    spec.resize = parse_sides(key, value);
  } else if (key == "crop") {
    spec.crop = parse_sides(key, value);
  } else if (key == "channels") {
    spec.channels = one_of(key, value, {"rgb", "bgr", "gray"});
  } else if (key == "alpha") {
    spec.alpha = parse_number(key, value);
  } else if (key == "width_from") {
    spec.width_from = value;
  } else if (key == "frame") {
    spec.frame = parse_count(key, value, 1);
  } else if (key == "context") {
    spec.context = parse_count(key, value, 0);
  } else if (key == "rate") {
    spec.rate = parse_count(key, value, 1);
  } else if (key == "feedback") {
    spec.feedback = pairs_of(key, value, "model_input:model_output");
  } else if (key == "reset") {
    spec.reset = one_of(key, value, {"per_file"});
  } else if (key == "constants") {
    for (const auto& pair : pairs_of(key, value, "model_input:number"))
      spec.constants.emplace_back(pair.first, parse_number(key, pair.second));
  } else if (key == "alphabet") {
    spec.alphabet = value;
  } else if (key == "blank") {
    spec.blank = parse_count(key, value, 0);
  } else if (key == "ignore_spaces") {
    spec.ignore_spaces = one_of(key, value, {"true", "false"}) == "true";
  } else if (key == "threshold") {
    spec.threshold = parse_number(key, value);
  } else if (key == "window") {
    spec.window = parse_count(key, value, 1);
  } else if (key == "stride") {
    spec.stride = parse_count(key, value, 1);
  } else if (key == "bos") {
    spec.bos = one_of(key, value, {"none", "begin", "every"});
  } else if (key == "join") {
    spec.join = one_of(key, value, {"whole", "lines"});
  } else if (key == "field") {
    spec.field = value;
  } else if (key == "tokenizer") {
    spec.tokenizer = value;
  } else if (key == "boxes") {
    throw make_error(ErrorCode::kUsage, "data set key 'boxes' is a mapping, which does not go into one word")
        .hint("write the data set into a YAML file and give that: --data set.yaml");
  } else if (key == "skip") {
    spec.skip = parse_count(key, value, 0);
  } else if (key == "samples") {
    spec.samples = parse_count(key, value, 1);
  } else if (key == "batch") {
    spec.batch = parse_count(key, value, 1);
  } else if (key == "shuffle") {
    spec.shuffle = static_cast<std::uint64_t>(parse_count(key, value, 0));
  } else if (key == "max_nonfinite") {
    spec.max_nonfinite = parse_count(key, value, 0);
  } else {
    const std::string near = nearest_word(key, kDatasetKeys, kDatasetKeyCount);
    std::string all;
    for (const char* known : kDatasetKeys) all += (all.empty() ? "" : ", ") + std::string(known);
    throw make_error(ErrorCode::kUsage, "'{}' is no key of a data set", key)
        .hint(near.empty() ? "the keys are " + all : fmt::format("did you mean '{}'?", near));
  }
}

DatasetSpec parse_data_argument(const std::string& text) {
  DatasetSpec spec;
  // The first colon behind which a word and '=' stand.
  std::size_t split = std::string::npos;
  for (std::size_t i = text.find(':'); i != std::string::npos; i = text.find(':', i + 1)) {
    std::size_t end = i + 1;
    while (end < text.size() && (std::islower(static_cast<unsigned char>(text[end])) || text[end] == '_'))
      ++end;
    if (end > i + 1 && end < text.size() && text[end] == '=') {
      split = i;
      break;
    }
  }
  spec.path = text.substr(0, split);
  if (spec.path.empty())
    throw make_error(ErrorCode::kUsage, "no data file in '{}'", text)
        .hint("write images.npy:layout=nhwc_to_nchw,scale=1/255");
  if (split == std::string::npos) return spec;

  std::set<std::string> seen;
  for (const std::string& part : split_list(text.substr(split + 1))) {
    const auto equals = part.find('=');
    if (equals == std::string::npos)
      throw make_error(ErrorCode::kUsage, "'{}' in the data argument is not key=value", part)
          .hint("lists stand in brackets: mean=[0.485,0.456,0.406]");
    const std::string key = trimmed(part.substr(0, equals));
    if (!seen.insert(key).second)
      throw make_error(ErrorCode::kUsage, "data set key '{}' is given twice", key).hint("give it once");
    set_dataset_key(spec, key, trimmed(part.substr(equals + 1)));
  }
  return spec;
}

}  // namespace pare
