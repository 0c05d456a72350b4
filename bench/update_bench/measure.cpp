// SPDX-License-Identifier: Apache-2.0
#include "update_bench/measure.hpp"

#include <algorithm>
#include <numeric>

#include "simd/reduce.hpp"

namespace outboard::update_bench {
namespace {

std::uint64_t sum(const std::vector<std::uint64_t>& values) {
  return std::accumulate(values.begin(), values.end(), std::uint64_t{0});
}

std::vector<NodeLayout> layout_of(const std::vector<std::uint64_t>& sizes, const Crew& crew,
                                  Rule rule) {
  return make_layout(sizes, crew.threads_per_node(),
                     // LAMB takes its norms over blocks.
                     rule == Rule::lamb ? simd::kReduceBlockElems : kCutElems);
}

/// Room on each node for either layout.
std::vector<std::uint64_t> node_elems(const std::vector<NodeLayout>& one,
                                      const std::vector<NodeLayout>& other) {
  std::vector<std::uint64_t> elems;
  for (std::size_t i = 0; i < one.size(); ++i) {
    elems.push_back(std::max(one[i].elems, other[i].elems));
  }
  return elems;
}

/// The series of one measurement, being taken.
class Rounds {
 public:
  Rounds(Measurement& out, Stepper& all, Stepper& one)
      : out_(out), all_(all), one_(one), total_(static_cast<double>(out.params)) {}

  void take(std::uint32_t round) {
    // Whoever comes second finds what the first left in the cache: they change places.
    if (round % 2 == 0) roof();
    update();
    if (round % 2 != 0) roof();
    if (out_.workload.tensors != 0) {
      out_.one_tensor.push_back(per_param(one_.run(Values::normal, out_.passes), out_.passes));
    }
  }
  /// Written anew each time, since a step leaves ordinary values.
  void take_values() {
    all_.fill(Values::normal);
    out_.normal.push_back(per_param(all_.run(Values::normal, 1), 1));
    all_.fill(Values::subnormal);
    out_.subnormal.push_back(per_param(all_.run(Values::subnormal, 1), 1));
  }

 private:
  void roof() { out_.roof.push_back(per_param(one_.run_roof(out_.passes), out_.passes)); }
  void update() {
    out_.update.push_back(per_param(all_.run(Values::normal, out_.passes), out_.passes));
  }
  [[nodiscard]] double per_param(double seconds, std::uint32_t passes) const {
    return seconds * 1e9 / (total_ * passes);
  }

  Measurement& out_;
  Stepper& all_;
  Stepper& one_;  ///< over one tensor of the same size; the same object if there is one tensor
  double total_;
};

void require_memory(const std::vector<std::uint64_t>& elems, const Workload& workload) {
  const auto available = available_bytes();
  if (!available) return;
  require_free(Data::bytes_for(sum(elems), workload), *available,
               static_cast<double>(Data::bytes_for(1, workload)));
}

void time_rounds(Measurement& out, Stepper& all, Stepper& one) {
  Rounds rounds(out, all, one);
  for (std::uint32_t i = 0; i < out.workload.repeats; ++i) rounds.take(i);
  if (!out.workload.subnormal) return;
  for (std::uint32_t i = 0; i < out.workload.repeats; ++i) rounds.take_values();
}

}  // namespace

std::vector<double> Measurement::share_of_roof() const {
  std::vector<double> shares = ratios(roof, update);
  for (double& share : shares) share *= bytes_per_param / kRoofBytes;
  return shares;
}

Measurement measure(const topology::Machine& machine, Crew& crew, const Workload& workload) {
  validate(workload);
  const std::vector<std::uint64_t> sizes = tensor_sizes(workload);
  Measurement out;
  out.workload = workload;
  out.params = sum(sizes);
  const auto layout = layout_of(sizes, crew, workload.rule);
  const auto one_layout = layout_of({out.params}, crew, workload.rule);
  const auto elems = node_elems(layout, one_layout);
  require_memory(elems, workload);
  out.bytes_per_param = bytes_per_param(workload);
  out.passes =
      static_cast<std::uint32_t>(std::max<std::uint64_t>(workload.repeat_elems / out.params, 1));
  out.load_before = load_average();

  Data data(machine, elems, workload);
  Stepper all(crew, data, layout, workload);
  Stepper one(crew, data, one_layout, workload);
  one.fill(Values::normal);
  for (std::uint32_t i = 0; i < kMinRepeats; ++i) {
    out.triad.push_back(one.run_triad(out.passes) * 1e9 /
                        (static_cast<double>(out.params) * out.passes));
  }
  all.fill(Values::normal);
  (void)all.run(Values::normal, kCheckPasses);
  out.check = check(all, workload);
  time_rounds(out, all, one);
  out.pages = page_use_of_this_process(data.memory());
  out.notes = data.notes();
  out.load_after = load_average();
  return out;
}

}  // namespace outboard::update_bench
