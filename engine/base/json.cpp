#include "engine/base/json.h"

#include <cmath>
#include <iterator>
#include <unordered_set>
#include <utility>
#include <vector>

#include "engine/base/error.h"
#include "engine/base/limits.h"
#include "engine/base/mapped_file.h"

namespace pare {

namespace {

constexpr const char* kInvalidHint = "mend the text there, or make or copy the file again";

// Walks the text and tells where reading is: the parser keeps its position to itself.
class Cursor {
 public:
  using iterator_category = std::forward_iterator_tag;
  using value_type = char;
  using difference_type = std::ptrdiff_t;
  using pointer = const char*;
  using reference = const char&;

  Cursor(const char* at, const char** shared) : at_(at), shared_(shared) {}
  const char& operator*() const { return *at_; }
  Cursor& operator++() {
    ++at_;
    if (shared_ != nullptr) *shared_ = at_;
    return *this;
  }
  Cursor operator++(int) {
    Cursor before = *this;
    ++*this;
    return before;
  }
  friend bool operator==(const Cursor& a, const Cursor& b) { return a.at_ == b.at_; }

 private:
  const char* at_;
  const char** shared_;
};

// "what:line:column" of a place in the text, both from 1.
std::string place(std::string_view text, std::size_t offset, const std::string& what) {
  std::size_t line = 1, column = 1;
  for (std::size_t i = 0; i < offset && i < text.size(); ++i) {
    ++column;
    if (text[i] == '\n') {
      ++line;
      column = 1;
    }
  }
  return fmt::format("{}:{}:{}", what, line, column);
}

// Builds the value from the parser's events, refusing what the library would let pass.
class Builder : public nlohmann::json_sax<Json> {
 public:
  Builder(std::string_view text, const char* const& at, const std::string& what)
      : text_(text), at_(at), what_(what) {}

  Json take() { return std::move(root_); }

  bool null() override { return add(Json(nullptr)); }
  bool boolean(bool value) override { return add(Json(value)); }
  bool number_integer(std::int64_t value) override { return add(Json(value)); }
  bool number_unsigned(std::uint64_t value) override { return add(Json(value)); }
  bool number_float(double value, const std::string&) override { return add(Json(value)); }
  bool string(std::string& value) override { return add(Json(std::move(value))); }
  bool binary(Json::binary_t&) override { return false; }  // never in text

  bool start_object(std::size_t) override {
    open(Json::object());
    keys_.emplace_back();
    return true;
  }
  bool key(std::string& name) override {
    if (!keys_.back().insert(name).second) refuse(fmt::format("key '{}' appears twice in one object", name));
    name_ = std::move(name);
    return true;
  }
  bool end_object() override {
    keys_.pop_back();
    return close();
  }
  bool start_array(std::size_t) override {
    open(Json::array());
    return true;
  }
  bool end_array() override { return close(); }

  bool parse_error(std::size_t position, const std::string&,
                   const nlohmann::detail::exception& error) override {
    // The library's text is "[json.exception.parse_error.101] parse error at line 1, column 2: syntax ...".
    std::string message = error.what();
    const std::size_t bracket = message.find("] ");
    if (bracket != std::string::npos) message.erase(0, bracket + 2);
    if (message.rfind("parse error at", 0) == 0) {
      const std::size_t colon = message.find(": ");
      if (colon != std::string::npos) message.erase(0, colon + 2);
    }
    refuse(message, position == 0 ? 0 : position - 1);
  }

 private:
  [[noreturn]] void refuse(const std::string& message, std::size_t offset) const {
    throw make_error(ErrorCode::kBadFile, "invalid JSON: {}", message)
        .at(place(text_, offset, what_))
        .hint(kInvalidHint);
  }
  [[noreturn]] void refuse(const std::string& message) const {
    refuse(message, static_cast<std::size_t>(at_ - text_.data()) - 1);
  }

  void open(Json container) {
    if (stack_.size() >= limits::kMaxJsonDepth)
      refuse(fmt::format("nested deeper than the {} levels allowed", limits::kMaxJsonDepth));
    stack_.push_back(std::move(container));
    names_.push_back(std::move(name_));
  }
  bool close() {
    Json done = std::move(stack_.back());
    stack_.pop_back();
    name_ = std::move(names_.back());
    names_.pop_back();
    return add(std::move(done));
  }
  bool add(Json value) {
    if (stack_.empty()) {
      root_ = std::move(value);
    } else if (stack_.back().is_array()) {
      stack_.back().get_ref<Json::array_t&>().push_back(std::move(value));
    } else {
      // Past the map's own insert, which looks through all keys; keys_ has already done that.
      auto& members = static_cast<Json::object_t::Container&>(stack_.back().get_ref<Json::object_t&>());
      members.emplace_back(std::move(name_), std::move(value));
    }
    return true;
  }

  std::string_view text_;
  const char* const& at_;
  const std::string& what_;
  Json root_;
  std::vector<Json> stack_;         // the containers that are open
  std::vector<std::string> names_;  // the key under which each of them goes into the one around it
  std::vector<std::unordered_set<std::string>> keys_;  // of the open objects
  std::string name_;                                   // the key of the next value
};

bool has_non_finite(const Json& value) {
  if (value.is_number_float()) return !std::isfinite(value.get<double>());
  if (!value.is_structured()) return false;
  for (const Json& item : value)
    if (has_non_finite(item)) return true;
  return false;
}

void name_non_finite(Json& value) {
  if (value.is_number_float()) value = json_number(value.get<double>());
  if (!value.is_structured()) return;
  for (Json& item : value) name_non_finite(item);
}

[[noreturn]] void wrong_type(const std::string& what, const char* key, const char* type) {
  throw make_error(ErrorCode::kBadFile, "{}: key '{}' is not {}", what, key, type)
      .hint("mend the key, or make the file again");
}

}  // namespace

Json parse_json(std::string_view text, const std::string& what) {
  // The library takes a zero byte for the end of the text and would not look at what follows.
  const std::size_t zero = text.find('\0');
  if (zero != std::string_view::npos)
    throw make_error(ErrorCode::kBadFile, "invalid JSON: a zero byte")
        .at(place(text, zero, what))
        .hint(kInvalidHint);
  if (text.empty())  // versions of the library word it differently
    throw make_error(ErrorCode::kBadFile, "invalid JSON: nothing is in it")
        .at(place(text, 0, what))
        .hint(kInvalidHint);
  const char* at = text.data();
  Builder builder(text, at, what);
  const Cursor begin(text.data(), &at), end(text.data() + text.size(), nullptr);
  // The builder throws at every error, so there is no other way out.
  PARE_ASSERT(Json::sax_parse(begin, end, &builder));
  return builder.take();
}

Json read_json_file(const std::string& path) {
  return parse_json(read_text_file(path, limits::kMaxJsonBytes), path);
}

Json json_number(double value) {
  if (std::isnan(value)) return "nan";
  if (std::isinf(value)) return value > 0 ? "inf" : "-inf";
  return value;
}

std::string dump(const Json& value, int indent) {
  if (has_non_finite(value)) {
    Json named = value;
    name_non_finite(named);
    return dump(named, indent);
  }
  return value.dump(indent, ' ', false, Json::error_handler_t::replace);
}

const Json& json_member(const Json& object, const char* key, const std::string& what) {
  if (!object.is_object())
    throw make_error(ErrorCode::kBadFile, "{} is not a JSON object", what).hint("is it the right file?");
  const auto found = object.find(key);
  if (found == object.end())
    throw make_error(ErrorCode::kBadFile, "{}: key '{}' is missing", what, key).hint("is it the right file?");
  return *found;
}

bool json_bool(const Json& object, const char* key, const std::string& what) {
  const Json& value = json_member(object, key, what);
  if (!value.is_boolean()) wrong_type(what, key, "true or false");
  return value.get<bool>();
}

std::int64_t json_int(const Json& object, const char* key, const std::string& what) {
  const Json& value = json_member(object, key, what);
  if (!value.is_number_integer() ||
      (value.is_number_unsigned() && value.get<std::uint64_t>() > static_cast<std::uint64_t>(INT64_MAX)))
    wrong_type(what, key, "a whole number of at most 63 bits");
  return value.get<std::int64_t>();
}

double json_double(const Json& object, const char* key, const std::string& what) {
  const Json& value = json_member(object, key, what);
  if (value.is_number()) return value.get<double>();
  if (value == "nan") return std::nan("");
  if (value == "inf") return HUGE_VAL;
  if (value == "-inf") return -HUGE_VAL;
  wrong_type(what, key, "a number");
}

std::string json_string(const Json& object, const char* key, const std::string& what) {
  const Json& value = json_member(object, key, what);
  if (!value.is_string()) wrong_type(what, key, "a string");
  return value.get<std::string>();
}

const Json& json_array(const Json& object, const char* key, const std::string& what) {
  const Json& value = json_member(object, key, what);
  if (!value.is_array()) wrong_type(what, key, "an array");
  return value;
}

const Json& json_object(const Json& object, const char* key, const std::string& what) {
  const Json& value = json_member(object, key, what);
  if (!value.is_object()) wrong_type(what, key, "an object");
  return value;
}

}  // namespace pare
