// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <bit>
#include <map>

#include "ckpt/format.hpp"
#include "ckpt/reader.hpp"
#include "outboard/checkpoint.hpp"

namespace outboard {
namespace {

constexpr std::uint64_t kPieceElems = ckpt::kPieceBytes / sizeof(float);

/// Where one tensor lies in a checkpoint.
struct Place {
  std::size_t parameter = 0, stream = 0;
  std::uint64_t elems = 0, checksum = 0;
};

std::map<std::string, Place> places_of(const ckpt::Manifest& manifest) {
  std::map<std::string, Place> places;
  for (std::size_t i = 0; i < manifest.parameters.size(); ++i) {
    const ckpt::ParameterEntry& entry = manifest.parameters[i];
    for (std::size_t k = 0; k < entry.streams.size(); ++k) {
      places[ckpt::tensor_name(entry.streams[k].name, entry.name())] = {i, k, entry.elems,
                                                                        entry.streams[k].checksum};
    }
  }
  return places;
}

class Comparing {
 public:
  Comparing(const ckpt::Checkpoint& a, const ckpt::Checkpoint& b) : a_(a), b_(b) {}

  StateComparison run() {
    auto others = places_of(b_.manifest());
    const auto& parameters = a_.manifest().parameters;
    for (std::size_t i = 0; i < parameters.size(); ++i) {
      for (std::size_t k = 0; k < parameters[i].streams.size(); ++k) {
        const ckpt::StreamEntry& stream = parameters[i].streams[k];
        const std::string name = ckpt::tensor_name(stream.name, parameters[i].name());
        const auto other = others.find(name);
        const bool both = other != others.end() && other->second.elems == parameters[i].elems;
        if (!both) out_.unmatched.push_back(name);
        if (both) compare({i, k, parameters[i].elems, stream.checksum}, other->second, name);
        if (other != others.end()) others.erase(other);
      }
    }
    for (const auto& [name, place] : others) out_.unmatched.push_back(name);
    return std::move(out_);
  }

 private:
  void compare(const Place& own, const Place& other, const std::string& name) {
    if (own.checksum == other.checksum) return;
    const std::uint64_t before = out_.elements;
    auto one = a_.stream(own.parameter, own.stream);
    auto two = b_.stream(other.parameter, other.stream);
    for (std::uint64_t first = 0; first < own.elems; first += x_.size()) {
      x_.resize(std::min(own.elems - first, kPieceElems));
      y_.resize(x_.size());
      one.read(std::as_writable_bytes(std::span(x_)));
      two.read(std::as_writable_bytes(std::span(y_)));
      compare_piece(own, first);
    }
    one.finish();
    two.finish();
    if (out_.elements > before) out_.tensors.push_back(name);
  }

  void compare_piece(const Place& own, std::uint64_t first) {
    for (std::size_t i = 0; i < x_.size(); ++i) {
      if (std::bit_cast<std::uint32_t>(x_[i]) == std::bit_cast<std::uint32_t>(y_[i])) continue;
      out_.elements += 1;
      if (out_.first) continue;
      const ckpt::ParameterEntry& entry = a_.manifest().parameters[own.parameter];
      out_.first = {entry.name(), entry.streams[own.stream].name, first + i, x_[i], y_[i]};
    }
  }

  const ckpt::Checkpoint& a_;
  const ckpt::Checkpoint& b_;
  std::vector<float> x_, y_;
  StateComparison out_;
};

}  // namespace

StateComparison compare_state(const std::string& a, const std::string& b) {
  ckpt::FileSystem& files = ckpt::posix_file_system();
  const auto one = ckpt::Checkpoint::open(files, a);
  const auto two = ckpt::Checkpoint::open(files, b);
  return Comparing(one, two).run();
}

}  // namespace outboard
