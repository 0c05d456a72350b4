// SPDX-License-Identifier: Apache-2.0
#include "plan/step_model.hpp"

#include <algorithm>
#include <cmath>
#include <string>

#include "outboard/error.hpp"

namespace outboard::plan {
namespace {

void require_sane(const ComputePiece& piece, std::size_t count, const char* where) {
  if (!(piece.us >= 0.0) || !std::isfinite(piece.us)) {
    throw Error(ErrorCode::invalid_argument, std::string("StepTimes::") + where +
                                                 " has a piece of " + std::to_string(piece.us) +
                                                 " us; times must be 0 or positive and finite");
  }
  if (piece.parameter == kNoParameter || piece.parameter < count) return;
  throw Error(ErrorCode::invalid_argument,
              std::string("StepTimes::") + where + " names parameter " +
                  std::to_string(piece.parameter) + " of " + std::to_string(count) +
                  "; use indices into the layout's parameters");
}

void add_buckets(const ModelLayout& layout, StepModel& model) {
  for (const Bucket& bucket : layout.buckets) {
    const std::uint64_t cost = bucket.cost_elems > 0 ? bucket.cost_elems : bucket.elems;
    const std::uint32_t unpacks = bucket.packed_segments > 0 ? 1 : 0;
    const std::uint64_t bytes = bucket.elems * dtype_bytes(bucket.dtype);
    // A sum is read in place of the gradient.
    const std::uint64_t more_bytes =
        model.micro_batches > 0 ? bucket.elems * sizeof(float) - bytes : 0;
    model.buckets.push_back({.elems = cost,
                             .device_elems = cost + more_bytes / kUpdateBytesPerElem,
                             .bytes = bytes,
                             .padded_elems = bucket.padded_elems,
                             .largest_padded_elems = bucket.padded_elems,
                             .copies = bucket.segments - bucket.packed_segments + unpacks,
                             .kernels = bucket.segments,
                             .unpacks = unpacks,
                             .packed_elems = bucket.packed_elems,
                             .packed_bytes = bucket.packed_bytes(),
                             .gradients = 0,
                             .unit = bucket.unit});
  }
}

/// Index of the piece that completes each parameter.
std::vector<std::size_t> last_pieces(const ModelLayout& layout, const StepTimes& times) {
  std::vector<std::size_t> last(layout.parameters.size(), SIZE_MAX);
  for (std::size_t i = 0; i < times.backward.size(); ++i) {
    const std::uint32_t parameter = times.backward[i].parameter;
    require_sane(times.backward[i], last.size(), "backward");
    if (parameter != kNoParameter) last[parameter] = i;
  }
  for (std::size_t p = 0; p < last.size(); ++p) {
    if (last[p] != SIZE_MAX || layout.parameters[p].count == 0) continue;
    throw Error(ErrorCode::invalid_argument,
                "StepTimes::backward has no piece for parameter " + std::to_string(p) +
                    "; each parameter needs one that completes its gradient");
  }
  return last;
}

/// What a piece of backward completes. `ungiven`: by bucket, of what it packs.
void add_gradients(const ModelLayout& layout, SegmentRange range, std::uint32_t piece,
                   std::vector<std::uint32_t>& ungiven, StepModel& model) {
  for (std::uint32_t k = range.first; k < range.first + range.count; ++k) {
    const Segment& segment = layout.segments[k];
    const Bucket& bucket = layout.buckets[segment.bucket];
    StepModel::Gradient& gradient = model.gradients.emplace_back();
    model.buckets[segment.bucket].gradients += 1;
    gradient = {.bucket = segment.bucket,
                .copies = 1,
                .bytes = segment.elems * dtype_bytes(bucket.dtype),
                .packed_elems = 0,
                .elems = segment.elems,
                .parameters = segment.first_element == 0 ? 1U : 0U,
                .piece = piece};
    if (!bucket.packs(segment)) continue;
    const bool last = --ungiven[segment.bucket] == 0;
    gradient.packed_elems = segment.elems;
    gradient.copies = last ? 1 : 0;
    gradient.bytes = last ? bucket.packed_bytes() : 0;
  }
}

void add_backward(const ModelLayout& layout, const StepTimes& times, StepModel& model) {
  const std::vector<std::size_t> last = last_pieces(layout, times);
  std::vector<std::uint32_t> ungiven;
  for (const Bucket& bucket : layout.buckets) ungiven.push_back(bucket.packed_segments);
  for (std::size_t i = 0; i < times.backward.size(); ++i) {
    const ComputePiece& piece = times.backward[i];
    StepModel::Backward work{piece.us, static_cast<std::uint32_t>(model.gradients.size()), 0, 0, 0};
    model.backward_us += piece.us;
    if (piece.parameter != kNoParameter && last[piece.parameter] == i) {
      const SegmentRange range = layout.parameters[piece.parameter];
      add_gradients(layout, range, static_cast<std::uint32_t>(i), ungiven, model);
      for (std::uint32_t k = range.first; k < range.first + range.count; ++k) {
        work.norm_elems += layout.segments[k].elems;
      }
      work.gradients = range.count;
      work.norms = range.count == 0 ? 0 : 1;
    }
    model.backward.push_back(work);
  }
}

void add_forward(const ModelLayout& layout, const StepTimes& times, StepModel& model) {
  std::vector<bool> needed(layout.buckets.size(), false);
  for (const ComputePiece& piece : times.forward) {
    require_sane(piece, layout.parameters.size(), "forward");
    StepModel::Forward work{piece.us, static_cast<std::uint32_t>(model.needs.size()), 0};
    model.forward_us += piece.us;
    const SegmentRange range =
        piece.parameter == kNoParameter ? SegmentRange{} : layout.parameters[piece.parameter];
    for (std::uint32_t k = range.first; k < range.first + range.count; ++k) {
      model.needs.push_back(layout.segments[k].bucket);
      needed[layout.segments[k].bucket] = true;
    }
    work.needs = range.count;
    model.forward.push_back(work);
  }
  StepModel::Forward rest{0.0, static_cast<std::uint32_t>(model.needs.size()), 0};
  for (std::uint32_t b = 0; b < needed.size(); ++b) {
    if (!needed[b]) model.needs.push_back(b);
  }
  rest.needs = static_cast<std::uint32_t>(model.needs.size()) - rest.first_need;
  if (rest.needs > 0 || model.forward.empty()) model.forward.push_back(rest);
}

/// What `items` name, in order, without repetition.
template <class Items, class Name>
void names_of(const Items& items, Name name, std::vector<std::uint32_t>& out) {
  out.clear();
  for (const auto& item : items) out.push_back(name(item));
  std::ranges::sort(out);
  out.erase(std::unique(out.begin(), out.end()), out.end());
}

void add_needs(std::span<const std::uint32_t> groups, StepModel& out) {
  StepModel::Forward& work = out.forward.back();
  for (const std::uint32_t group : groups) {
    const auto first = out.needs.begin() + work.first_need;
    if (std::find(first, out.needs.end(), group) == out.needs.end()) out.needs.push_back(group);
  }
  work.needs = static_cast<std::uint32_t>(out.needs.size()) - work.first_need;
}

void coarsen_forward(const StepModel& model, const Grouping& grouping, StepModel& out) {
  std::vector<std::uint32_t> groups, stretches, before;
  for (const StepModel::Forward& work : model.forward) {
    const auto needs = std::span(model.needs).subspan(work.first_need, work.needs);
    names_of(
        needs, [&](std::uint32_t bucket) { return grouping.group_of[bucket]; }, groups);
    names_of(
        groups, [&](std::uint32_t group) { return grouping.stretch_of[group]; }, stretches);
    if (out.forward.empty() || (stretches != before && !stretches.empty())) {
      out.forward.push_back({0.0, static_cast<std::uint32_t>(out.needs.size()), 0});
      before = stretches;
    }
    out.forward.back().us += work.us;
    add_needs(groups, out);
  }
}

void append_gradients(std::span<const StepModel::Gradient> gradients,
                      std::span<const std::uint32_t> group_of, StepModel& out) {
  const std::size_t first = out.backward.back().first_gradient;
  for (const StepModel::Gradient& gradient : gradients) {
    const std::uint32_t group = group_of[gradient.bucket];
    const auto same = [&](const StepModel::Gradient& other) { return other.bucket == group; };
    const auto found = std::find_if(out.gradients.begin() + static_cast<std::ptrdiff_t>(first),
                                    out.gradients.end(), same);
    if (found == out.gradients.end()) {
      out.gradients.push_back(gradient);
      out.gradients.back().bucket = group;
      out.gradients.back().piece = static_cast<std::uint32_t>(out.backward.size() - 1);
      out.buckets[group].gradients += 1;
    } else {
      found->copies += gradient.copies;
      found->bytes += gradient.bytes;
      found->packed_elems += gradient.packed_elems;
      found->elems += gradient.elems;
      found->parameters += gradient.parameters;
    }
  }
}

void coarsen_backward(const StepModel& model, const Grouping& grouping, StepModel& out) {
  std::vector<std::uint32_t> stretches, before;
  for (const StepModel::Backward& work : model.backward) {
    const auto gradients = std::span(model.gradients).subspan(work.first_gradient, work.gradients);
    names_of(
        gradients,
        [&](const StepModel::Gradient& g) {
          return grouping.stretch_of[grouping.group_of[g.bucket]];
        },
        stretches);
    if (out.backward.empty() || (stretches != before && !before.empty())) {
      out.backward.push_back({0.0, static_cast<std::uint32_t>(out.gradients.size()), 0, 0, 0});
      before.clear();
    }
    StepModel::Backward& merged = out.backward.back();
    append_gradients(gradients, grouping.group_of, out);
    merged.us += work.us;
    merged.gradients = static_cast<std::uint32_t>(out.gradients.size()) - merged.first_gradient;
    merged.norms += work.norms;
    merged.norm_elems += work.norm_elems;
    if (before.empty()) before = stretches;
  }
}

}  // namespace

StepModel make_step_model(const ModelLayout& layout, const StepTimes& times) {
  StepModel model;
  model.parameters = layout.parameters.size();
  model.micro_batches = times.micro_batches;
  model.ring_slots = std::max(times.ring_slots, 1U);
  ModelLayout bare = layout;
  // Sums are made of single gradients, which come through the ring.
  for (Bucket& bucket : bare.buckets) {
    if (model.micro_batches > 0) bucket.pack_nothing();
  }
  add_buckets(bare, model);
  add_backward(bare, times, model);
  add_forward(bare, times, model);
  return model;
}

StepModel coarsen(const StepModel& model, const Grouping& grouping) {
  const std::vector<std::uint32_t>& group_of = grouping.group_of;
  StepModel out;
  out.forward_us = model.forward_us;
  out.backward_us = model.backward_us;
  out.micro_batches = model.micro_batches;
  out.ring_slots = model.ring_slots;
  out.parameters = model.parameters;
  out.state_bytes_per_elem = model.state_bytes_per_elem;
  for (std::size_t b = 0; b < model.buckets.size(); ++b) {
    if (group_of[b] >= out.buckets.size()) out.buckets.resize(group_of[b] + 1);
    StepModel::Bucket& group = out.buckets[group_of[b]];
    group.elems += model.buckets[b].elems;
    group.device_elems += model.buckets[b].device_elems;
    group.bytes += model.buckets[b].bytes;
    group.padded_elems += model.buckets[b].padded_elems;
    group.largest_padded_elems =
        std::max(group.largest_padded_elems, model.buckets[b].largest_padded_elems);
    group.copies += model.buckets[b].copies;
    group.kernels += model.buckets[b].kernels;
    group.unpacks += model.buckets[b].unpacks;
    group.packed_elems += model.buckets[b].packed_elems;
    group.packed_bytes += model.buckets[b].packed_bytes;
  }
  coarsen_backward(model, grouping, out);
  coarsen_forward(model, grouping, out);
  return out;
}

}  // namespace outboard::plan
