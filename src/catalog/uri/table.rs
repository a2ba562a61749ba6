//! Who owns a URI, and how hosts see it: the decisions over what all servers listed.
//!
//! Built with each catalogue, immutable. Keeps what policy hides, so that nothing hidden is reached by another
//! spelling or by what was learned (U-6); it is in no answer.

use std::borrow::Cow;
use std::sync::Arc;

use super::form;
use super::template::Template;
use crate::ident::ServerKey;

/// Where a request about a URI goes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UriRoute<'a> {
    /// Index of the server.
    pub server: usize,
    /// What it calls the resource or template.
    pub native: Cow<'a, str>,
}

/// A server of the catalogue.
#[derive(Debug)]
pub(in super::super) struct Site {
    /// Its index in the settings.
    pub(in super::super) server: usize,
    pub(in super::super) key: ServerKey,
    /// It has no prefix: its URIs pass untouched.
    pub(in super::super) bare: bool,
    /// Whether the view shows it.
    pub(in super::super) visible: bool,
}

/// A resource, a template, or a link to a user interface, of the site at this position.
#[derive(Clone, Debug)]
pub(in super::super) struct Listed {
    pub(in super::super) native: Arc<str>,
    pub(in super::super) site: usize,
    pub(in super::super) visible: bool,
}

/// Everything about URIs.
#[derive(Debug, Default)]
pub(in super::super) struct Uris {
    /// By key.
    sites: Vec<Site>,
    /// By URI, then site.
    resources: Vec<Listed>,
    /// Links of the visible tools of the site without a prefix, which no list need name (APP-2); by URI.
    links: Vec<Arc<str>>,
    templates: Vec<Held>,
}

/// A template.
#[derive(Debug)]
struct Held {
    listed: Listed,
    parsed: Arc<Template>,
    exposed: Arc<str>,
    /// The inside of the form of ours, where it is exposed so.
    enclosed: Option<Template>,
}

/// Who answers to a URI as a server wrote it, going by lists.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Owner {
    Nobody,
    One(usize),
    /// Several, of whom none may win (U-2).
    Contested,
}

impl Uris {
    /// The tables; `sites` by key.
    pub(in super::super) fn new(
        sites: Vec<Site>,
        mut resources: Vec<Listed>,
        templates: Vec<(Listed, Arc<Template>)>,
        mut links: Vec<Listed>,
    ) -> Self {
        resources.sort_by(|a, b| a.native.cmp(&b.native).then(a.site.cmp(&b.site)));
        links.retain(|link| link.visible && sites[link.site].bare);
        let mut links: Vec<_> = links.into_iter().map(|link| link.native).collect();
        links.sort_unstable();
        let mut uris = Self { sites, resources, links, templates: Vec::new() };
        uris.templates = uris.expose_templates(templates);
        uris
    }

    /// How hosts see a URI that the server at this position mentions (U-2, U-4).
    pub(in super::super) fn expose<'a>(&self, site: usize, native: &'a str) -> Cow<'a, str> {
        let Site { key, bare, visible, .. } = &self.sites[site];
        // Of a server without a prefix everything passes untouched, but for what would be read from another one.
        if !visible || (*bare && (native.starts_with(form::UI) || native.starts_with(form::OURS))) {
            return Cow::Borrowed(native);
        }
        let key = key.as_str();
        if let Some(inserted) = form::insert_key(key, native) {
            let free = self.bare_owner(&inserted).is_none();
            return Cow::Owned(if free { inserted } else { form::enclose(key, native) });
        }
        match self.owner(native) {
            Owner::Contested => Cow::Owned(form::enclose(key, native)),
            Owner::One(other) if other != site => Cow::Owned(form::enclose(key, native)),
            // What looks like a URI of ours would go to the server that it names.
            _ if native.starts_with(form::OURS) => Cow::Owned(form::enclose(key, native)),
            Owner::Nobody | Owner::One(_) => Cow::Borrowed(native),
        }
    }

    /// The same by the server's index.
    pub(in super::super) fn expose_for<'a>(&self, server: usize, native: &'a str) -> Cow<'a, str> {
        match self.sites.iter().position(|site| site.server == server) {
            Some(site) => self.expose(site, native),
            None => Cow::Borrowed(native),
        }
    }

    /// Who answers to a URI of a host, in the order of U-1; never more than one.
    pub(in super::super) fn resolve<'a>(
        &self,
        uri: &'a str,
        learned: impl Fn(&str) -> Option<usize>,
    ) -> Option<UriRoute<'a>> {
        // Percent-encoding makes a URI three times as long at most.
        if uri.len() > 3 * form::MAX_URI + 32 || uri.chars().any(char::is_control) {
            return None;
        }
        if let Some((key, inside)) = form::split_enclosed(uri)
            && let Some(site) = self.site_of(key)
        {
            let native = self.disclose(site, inside, &learned)?;
            return self.route(site, native.into());
        }
        if let Some(site) = self.bare_owner(uri) {
            return self.route(site, uri.into());
        }
        if let Some((key, rest)) = form::split_key(uri)
            && let Some(site) = self.site_of(key).filter(|&site| !self.sites[site].bare)
        {
            return self.route(site, [form::UI, rest].concat().into());
        }
        match self.owner(uri) {
            Owner::One(site) => return self.route(site, uri.into()),
            Owner::Contested => return None,
            Owner::Nobody => {}
        }
        let known = learned(uri).and_then(|server| self.sites.iter().position(|site| site.server == server));
        if let Some(site) = known.filter(|&site| self.sites[site].visible) {
            return self.route(site, uri.into());
        }
        // Longer ones no server is asked for; matching them against every template would take its time.
        if uri.len() > form::MAX_URI {
            return None;
        }
        let mut matching = self
            .templates
            .iter()
            .filter(|held| held.listed.visible && *held.exposed == *held.listed.native && held.parsed.matches(uri));
        let site = matching.next()?.listed.site;
        if matching.any(|other| other.listed.site != site) {
            return None;
        }
        self.route(site, uri.into())
    }

    /// The template that is exposed as this (U-9).
    pub(in super::super) fn resolve_template(&self, exposed: &str) -> Option<UriRoute<'static>> {
        let held = self.templates.iter().find(|held| held.listed.visible && &*held.exposed == exposed)?;
        let native = held.listed.native.to_string();
        Some(UriRoute { server: self.sites[held.listed.site].server, native: native.into() })
    }

    /// The exposed templates, in the order in which they were given.
    pub(in super::super) fn exposed_templates(&self) -> impl Iterator<Item = &Arc<str>> {
        self.templates.iter().map(|held| &held.exposed)
    }

    /// The position of a server that is visible.
    fn site_of(&self, key: &str) -> Option<usize> {
        let site = self.sites.binary_search_by(|site| site.key.as_str().cmp(key)).ok()?;
        self.sites[site].visible.then_some(site)
    }

    /// Those who list this URI.
    fn listing(&self, native: &str) -> impl Iterator<Item = &Listed> + Clone {
        let from = self.resources.partition_point(|listed| *listed.native < *native);
        self.resources[from..].iter().take_while(move |listed| *listed.native == *native)
    }

    /// The server without a prefix, if this is a URI of its lists and tools: it passes untouched, whatever it is like.
    fn bare_owner(&self, uri: &str) -> Option<usize> {
        let bare = self.sites.iter().position(|site| site.bare && site.visible)?;
        let linked = || self.links.binary_search_by(|link| (**link).cmp(uri)).is_ok();
        let lists = self.listing(uri).any(|listed| listed.visible && listed.site == bare);
        (lists || linked()).then_some(bare)
    }

    fn owner(&self, uri: &str) -> Owner {
        if let Some(bare) = self.bare_owner(uri) {
            return Owner::One(bare);
        }
        // Such ones of other servers are always spelled otherwise.
        if uri.starts_with(form::UI) || uri.starts_with(form::OURS) {
            return Owner::Nobody;
        }
        let mut owners = self.listing(uri).filter(|listed| listed.visible).map(|listed| listed.site);
        match (owners.next(), owners.next()) {
            (None, _) => Owner::Nobody,
            (Some(_), Some(_)) if !form::has_meaning(uri) => Owner::Contested,
            (Some(first), _) => Owner::One(first),
        }
    }

    /// What stands inside of a URI of ours. Where it may be one of the server's URIs as well as an expansion of a
    /// template, it is the URI if the server is known to have such a one.
    fn disclose(&self, site: usize, inside: &str, learned: impl Fn(&str) -> Option<usize>) -> Option<String> {
        let whole = form::disclose(inside);
        if let Some(uri) = &whole
            && (self.listing(uri).any(|listed| listed.site == site) || learned(uri) == Some(self.sites[site].server))
        {
            return whole;
        }
        let of_template = |held: &Held| held.parsed.disclose(held.enclosed.as_ref()?, inside);
        let own = self.templates.iter().filter(|held| held.listed.site == site && held.listed.visible);
        own.filter_map(of_template).next().or(whole)
    }

    /// U-6: what the lists of a server hide is not found, by whatever way.
    fn route<'a>(&self, site: usize, native: Cow<'a, str>) -> Option<UriRoute<'a>> {
        let own = |listed: &&Listed| listed.site == site;
        let may = if let Some(listed) = self.listing(&native).find(own) {
            listed.visible
        } else {
            let mut matching =
                self.templates.iter().filter(|held| own(&&held.listed) && held.parsed.matches(&native)).peekable();
            matching.peek().is_none() || matching.any(|held| held.listed.visible)
        };
        (may && form::is_uri(&native)).then(|| UriRoute { server: self.sites[site].server, native })
    }

    /// U-8: as they are, but twins in the form of ours.
    fn expose_templates(&self, templates: Vec<(Listed, Arc<Template>)>) -> Vec<Held> {
        let mut twins: Vec<(Arc<str>, usize)> = templates
            .iter()
            .filter(|(listed, _)| listed.visible)
            .map(|(listed, _)| (listed.native.clone(), listed.site))
            .collect();
        twins.sort_unstable();
        // Whether such a one of the servers has this template, too.
        let has = |text: &str, other: &dyn Fn(usize) -> bool| {
            let from = twins.partition_point(|(native, _)| **native < *text);
            twins[from..].iter().take_while(|(native, _)| **native == *text).any(|&(_, site)| other(site))
        };
        let expose = |(listed, parsed): (Listed, Arc<Template>)| {
            let Site { key, bare, visible, .. } = &self.sites[listed.site];
            let native = &listed.native;
            let inserted = form::insert_key(key.as_str(), native);
            let enclose = match &inserted {
                _ if *bare || !visible => false,
                Some(inserted) => has(inserted, &|site| self.sites[site].bare),
                None => native.starts_with(form::OURS) || has(native, &|site| site != listed.site),
            };
            if enclose {
                let inside = parsed.enclosed();
                let exposed = [form::OURS, key.as_str(), ":", &inside].concat().into();
                return Held { enclosed: Template::parse(&inside), listed, parsed, exposed };
            }
            let exposed = match inserted {
                Some(inserted) if !bare && *visible => inserted.into(),
                _ => native.clone(),
            };
            Held { listed, parsed, exposed, enclosed: None }
        };
        templates.into_iter().map(expose).collect()
    }
}
