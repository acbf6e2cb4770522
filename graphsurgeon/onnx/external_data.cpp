#include "graphsurgeon/onnx/external_data.h"

#include <sys/stat.h>

#include <algorithm>
#include <charconv>

#include "engine/base/error.h"
#include "engine/base/paths.h"
#include "engine/base/sha1.h"
#include "engine/base/sha256.h"

namespace pare {
namespace {

std::uint64_t number(const std::string& text, const char* key) {
  std::uint64_t value = 0;
  const auto parsed = std::from_chars(text.data(), text.data() + text.size(), value);
  if (parsed.ec != std::errc() || parsed.ptr != text.data() + text.size())
    fail(ErrorCode::kBadFile, "external data: {} is '{}', not a number", key, text);
  return value;
}

// Every part of the path below `directory` must be a folder, the last one a plain file; no links.
void check_no_links(const std::string& directory, const std::string& location) {
  for (std::size_t end = location.find('/');; end = location.find('/', end + 1)) {
    const std::string part = join_path(directory, location.substr(0, end));
    struct stat info {};
    if (lstat(part.c_str(), &info) != 0)
      throw make_error(ErrorCode::kBadFile, "external data file '{}' is missing", location)
          .at(part)
          .hint("copy the files of weights into the folder of the model, under the names that it uses");
    const bool last = end == std::string::npos;
    if (last ? !S_ISREG(info.st_mode) : !S_ISDIR(info.st_mode))
      throw make_error(ErrorCode::kBadFile,
                       "external data '{}' is not a plain file inside the model's folder", location)
          .at(part)
          .hint("links and special files are refused, since they may lead out of it: copy the file itself");
    if (last && info.st_nlink > 1)
      throw make_error(ErrorCode::kBadFile,
                       "external data '{}' is a hard link to a file that has other names", location)
          .at(part)
          .hint("it may belong to someone else: copy the file");
    if (last) return;
  }
}

}  // namespace

std::string why_bad_location(const std::string& location) {
  if (location.empty()) return "it is empty";
  if (location.find('\0') != std::string::npos) return "it holds a zero byte";
  if (location[0] == '/') return "it is an absolute path";
  for (std::size_t begin = 0; begin <= location.size();) {
    const std::size_t end = std::min(location.find('/', begin), location.size());
    const std::string part = location.substr(begin, end - begin);
    if (part == "..") return "'..' leads out of the model's folder";
    if (part.empty()) return "it has an empty part";
    begin = end + 1;
  }
  return {};
}

ExternalBytes open_external(const onnx::TensorProto& proto, TensorSource& source, std::int64_t needed) {
  std::string location, offset_text, length_text, checksum;
  for (const auto& entry : proto.external_data()) {
    if (entry.key() == "location") location = entry.value();
    if (entry.key() == "offset") offset_text = entry.value();
    if (entry.key() == "length") length_text = entry.value();
    if (entry.key() == "checksum") checksum = entry.value();
  }
  const std::string bad = why_bad_location(location);
  if (!bad.empty())
    throw make_error(ErrorCode::kBadFile, "external data location '{}' is refused: {}", location, bad)
        .hint("a model may only name files inside its own folder");
  if (source.directory.empty())
    fail(ErrorCode::kBadFile, "external data '{}' has no folder to be in", location);

  auto found = source.external.find(location);
  if (found == source.external.end()) {
    check_no_links(source.directory, location);
    found = source.external.emplace(location, MappedFile(join_path(source.directory, location))).first;
  }
  if (!checksum.empty()) source.checksums[location] = checksum;
  const auto file = found->second.bytes();
  const std::uint64_t offset = offset_text.empty() ? 0 : number(offset_text, "offset");
  if (offset > file.size())
    fail(ErrorCode::kBadFile, "external data begins at {}, but '{}' has {} bytes", offset, location,
         file.size());
  const std::uint64_t length = length_text.empty() ? file.size() - offset : number(length_text, "length");
  if (length > file.size() - offset || static_cast<std::uint64_t>(needed) > length)
    throw make_error(ErrorCode::kBadFile, "external data needs {} bytes from {} of '{}', which has {}",
                     std::max(length, static_cast<std::uint64_t>(needed)), offset, location, file.size())
        .hint("the file of weights is cut short or belongs to another model");
  return {file.subspan(static_cast<std::size_t>(offset), static_cast<std::size_t>(length)),
          found->second.owner()};
}

void verify_external(const TensorSource& source, const std::map<std::string, std::string>& sha256) {
  constexpr std::size_t kStep = 4u << 20;
  for (const auto& [location, file] : source.external) {
    const auto named = source.checksums.find(location);
    const auto ours = sha256.find(location);
    if (named == source.checksums.end() && ours == sha256.end()) continue;
    Sha1 sha1;
    Sha256 strong;
    const auto bytes = file.bytes();
    for (std::size_t done = 0; done < bytes.size(); done += kStep) {
      const auto piece = bytes.subspan(done, std::min(kStep, bytes.size() - done));
      sha1.update(piece);
      if (ours != sha256.end()) strong.update(piece);
    }
    std::string wanted = named == source.checksums.end() ? std::string() : named->second;
    for (char& c : wanted)
      if (c >= 'A' && c <= 'F') c = static_cast<char>(c - 'A' + 'a');
    const bool good = (wanted.empty() || sha1.finish() == wanted) &&
                      (ours == sha256.end() || hex(strong.finish()) == ours->second);
    if (!good)
      throw make_error(ErrorCode::kBadFile,
                       "external data '{}' does not have the checksum that the model names", location)
          .at(file.path())
          .hint("it is damaged, or belongs to another model: copy model and weights again, together");
  }
}

}  // namespace pare
