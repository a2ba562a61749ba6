//! Which of the visible tools are listed and which are found by search alone: a pure function of what there is and of
//! what the profile says, never of a connection (INV-4).
//!
//! Costs come in; what is listed goes out. Called by `merge` when a catalogue is built.

use std::cmp::Reverse;

use crate::config::settings::SurfaceMode;

/// A visible tool, as far as this decides about it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Candidate {
    /// It stays in the list before all others.
    pub(super) always: bool,
    /// How much it was called lately.
    pub(super) uses: u32,
    /// Where its server stands among those of the profile.
    pub(super) place: usize,
    /// The most that its definition costs in the list of any host, in tokens.
    pub(super) cost: usize,
}

/// What our own tools cost, in tokens.
#[derive(Clone, Copy, Debug)]
pub(super) struct Own {
    /// Those that are listed in any case.
    pub(super) fixed: usize,
    /// Those that are listed beside once something is behind search.
    pub(super) search: usize,
}

/// Which of the tools are listed; nothing where all of them are.
pub(super) fn listed(tools: &[Candidate], mode: SurfaceMode, max_tokens: Option<usize>, own: Own) -> Option<Vec<bool>> {
    let mut room = Room::new(max_tokens, own.fixed);
    let all = match mode {
        SurfaceMode::Search => tools.is_empty(),
        SurfaceMode::List | SurfaceMode::Auto => tools.iter().all(|tool| room.take(tool.cost)),
    };
    if all {
        return None;
    }
    let mut room = Room::new(max_tokens, own.fixed + own.search);
    let mut order: Vec<usize> = (0..tools.len()).collect();
    order.sort_by_key(|&n| (!tools[n].always, Reverse(tools[n].uses), tools[n].place, n));
    let mut listed = vec![false; tools.len()];
    for n in order {
        let wanted = tools[n].always || mode == SurfaceMode::List;
        listed[n] = wanted && room.take(tools[n].cost);
    }
    Some(listed)
}

/// What is left below a ceiling.
struct Room {
    used: usize,
    most: Option<usize>,
}

impl Room {
    fn new(most: Option<usize>, own: usize) -> Self {
        // The brackets.
        Self { used: 1 + own, most }
    }

    /// Whether so many tokens more fit; then they are taken.
    fn take(&mut self, cost: usize) -> bool {
        let used = self.used + cost;
        let fits = self.most.is_none_or(|most| used <= most);
        if fits {
            self.used = used;
        }
        fits
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tool(always: bool, place: usize, bytes: usize) -> Candidate {
        Candidate { always, uses: 0, place, cost: (bytes + 1).div_ceil(4) }
    }

    const OWN: Own = Own { fixed: 0, search: 10 };

    #[test]
    fn what_does_not_fit_goes_behind_search_in_order() {
        let tools = [tool(false, 1, 100), tool(false, 0, 100), tool(true, 2, 100), tool(false, 1, 20)];
        let list = |most| listed(&tools, SurfaceMode::List, Some(most), OWN);
        assert_eq!(list(85), None, "three of 26, one of 6, and the brackets");
        assert_eq!(list(84), Some(vec![false, true, true, true]));
        assert_eq!(list(68), Some(vec![false, true, true, false]));
        assert_eq!(list(42), Some(vec![false, false, true, false]));
        assert_eq!(list(11), Some(vec![false; 4]));
        assert_eq!(listed(&tools, SurfaceMode::List, None, OWN), None);
    }

    #[test]
    fn srf_2_what_was_called_more_comes_first() {
        let mut tools = [tool(false, 0, 100), tool(false, 0, 100), tool(true, 2, 100)];
        tools[1].uses = 3;
        tools[0].uses = 2;
        assert_eq!(listed(&tools, SurfaceMode::List, Some(68), OWN), Some(vec![false, true, true]));
        tools[0].uses = 4;
        assert_eq!(listed(&tools, SurfaceMode::List, Some(68), OWN), Some(vec![true, false, true]));
        assert_eq!(listed(&tools, SurfaceMode::List, Some(42), OWN), Some(vec![false, false, true]), "always first");
    }

    #[test]
    fn search_lists_what_always_is_and_auto_what_fits() {
        let tools = [tool(false, 0, 100), tool(true, 0, 100)];
        let always = Some(vec![false, true]);
        assert_eq!(listed(&tools, SurfaceMode::Search, None, OWN), always);
        assert_eq!(listed(&tools, SurfaceMode::Auto, Some(100), OWN), None);
        assert_eq!(listed(&tools, SurfaceMode::Auto, Some(50), OWN), always);
        assert_eq!(listed(&[], SurfaceMode::Search, None, OWN), None);
    }
}
