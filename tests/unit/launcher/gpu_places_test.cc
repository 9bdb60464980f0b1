// Catches: lines about GPUs that name the wrong ranks, CPUs or links, or that repeat themselves for
// every rank or host.
#include "launcher/ranks/gpu_places.h"

#include <gtest/gtest.h>

namespace lockstep::launcher {
namespace {

using cuda::GpuLink;
using Pcie = GpuLink::Pcie;
using Lines = std::vector<std::string>;

std::vector<GpuPlace> places(const std::string& host, int gpus) {
  std::vector<GpuPlace> places;
  for (int gpu = 0; gpu < gpus; ++gpu)
    places.push_back({host + "/boot",
                      gpu,
                      "0000:0" + std::to_string(gpu) + ":00.0",
                      2 * gpu < gpus ? "bound to 0-7" : "bound to 8-15",
                      gpu == 0 ? "GPUs 0-3: NVLink" : ""});
  return places;
}

TEST(GpuPlaces, EqualBindingsShareALine) {
  EXPECT_EQ(describe_places(places("a", 4)),
            (Lines{"a, ranks 0-1 on GPUs 0-1: bound to 0-7",
                   "a, ranks 2-3 on GPUs 2-3: bound to 8-15",
                   "a, between GPUs 0-3: NVLink"}));
}

TEST(GpuPlaces, HostsThatAreAlikeShareTheirLines) {
  std::vector<GpuPlace> all = places("a", 4);
  for (const char* host : {"b", "c"})
    for (const GpuPlace& place : places(host, 4)) all.push_back(place);
  EXPECT_EQ(describe_places(all),
            (Lines{"a, ranks 0-1 on GPUs 0-1: bound to 0-7 (2 other hosts are alike)",
                   "a, ranks 2-3 on GPUs 2-3: bound to 8-15 (2 other hosts are alike)",
                   "a, between GPUs 0-3: NVLink (2 other hosts are alike)"}));
  all.back().binding = "not bound";
  EXPECT_EQ(describe_places(all).size(), 7) << "a and b are alike, c is not";
}

TEST(GpuPlaces, ARankThatSeesOneGpuNamesItByItsBus) {
  std::vector<GpuPlace> two = places("a", 2);
  two[1].ordinal = 0;
  EXPECT_EQ(describe_places(two)[1], "a, rank 1 on GPU 0000:01:00.0: bound to 8-15");
}

TEST(GpuPlaces, RanksThatShareAGpu) {
  std::vector<GpuPlace> two = places("a", 2);
  two[1].ordinal = 0;
  two[1].pci_bus_id = two[0].pci_bus_id;
  two[1].binding = two[0].binding;
  EXPECT_EQ(describe_places(two)[0], "a, ranks 0-1 on GPU 0: bound to 0-7");
}

GpuLink nvlink(int links) { return {links, 4, Pcie::kSystem, 1}; }
GpuLink pcie(Pcie way, int peer = 1) { return {0, 0, way, peer}; }

std::string words(size_t gpus, const std::vector<GpuLink>& links) {
  Lines names;
  for (size_t gpu = 0; gpu < gpus; ++gpu) names.push_back(std::to_string(gpu));
  return describe_links(names, links);
}

TEST(GpuPlaces, Links) {
  EXPECT_EQ(words(0, {}), "");
  EXPECT_EQ(words(1, {}), "");
  EXPECT_EQ(words(2, {nvlink(1)}), "GPUs 0-1: NVLink 4, 1 link each");
  EXPECT_EQ(words(3, {nvlink(18), nvlink(18), nvlink(18)}), "GPUs 0-2: NVLink 4, 18 links each");
  EXPECT_EQ(words(2, {pcie(Pcie::kSwitch, 0)}),
            "GPUs 0-1: PCIe through a switch, without peer access");
  EXPECT_EQ(words(2, {pcie(Pcie::kUnknown, 0)}), "GPUs 0-1: no peer access");
  EXPECT_EQ(words(2, {GpuLink{}}), "GPUs 0-1: unknown");
}

TEST(GpuPlaces, LinksOfGroupsWithinGroups) {
  const GpuLink near = pcie(Pcie::kSwitch), middle = pcie(Pcie::kSocket), far = pcie(Pcie::kSystem);
  // Switches 0-1, 2-3, 4-5; sockets 0-3, 4-5.
  EXPECT_EQ(words(6,
                  {near,
                   middle,
                   middle,
                   far,
                   far,  // from 0
                   middle,
                   middle,
                   far,
                   far,  // from 1
                   near,
                   far,
                   far,  // from 2
                   far,
                   far,     // from 3
                   near}),  // from 4
            "GPUs 0-1, 2-3, 4-5: PCIe through a switch; GPUs 0-3: PCIe through host bridges of one "
            "socket; all others: PCIe across sockets");
}

TEST(GpuPlaces, LinksThatFormNoGroupsAreNamedByPairs) {
  // A chain: 0 and 1, 1 and 2.
  EXPECT_EQ(words(3, {nvlink(4), pcie(Pcie::kSocket), nvlink(4)}),
            "GPUs 0 and 1, 1 and 2: NVLink 4, 4 links each; all others: PCIe through host bridges "
            "of one socket");
}

}  // namespace
}  // namespace lockstep::launcher
