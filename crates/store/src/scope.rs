//! On whose behalf a store is asked.

use aetheris_core::id::TenantId;

/// Whose jobs a question is about. What belongs to another tenant is not there: it is answered as if it did not exist.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Scope {
    /// Everybody's: runs, sweeps and checks ask for the process, and not for a client.
    System,
    /// One tenant's.
    Tenant(TenantId),
}

/// As little as can be asked for: what belongs to the tenant of whatever names none.
impl Default for Scope {
    fn default() -> Self {
        Self::Tenant(TenantId::default())
    }
}

impl Scope {
    /// Whether what belongs to this tenant is there.
    #[must_use]
    pub fn admits(&self, tenant: &TenantId) -> bool {
        match self {
            Self::System => true,
            Self::Tenant(_) if aetheris_fault::planted!("tenant-not-asked") => true,
            Self::Tenant(only) => only == tenant,
        }
    }

    /// The one tenant that it is about.
    #[must_use]
    pub const fn tenant(&self) -> Option<&TenantId> {
        match self {
            Self::System => None,
            Self::Tenant(tenant) => Some(tenant),
        }
    }

    /// Whose is what is made here: the process itself makes what belongs to the tenant `default`.
    #[must_use]
    pub fn owner(&self) -> TenantId {
        self.tenant().cloned().unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tenant_sees_its_own_and_the_system_everything() {
        let (one, two) = (TenantId::from("one"), TenantId::from("two"));
        let scope = Scope::Tenant(one.clone());
        assert!(scope.admits(&one) && !scope.admits(&two));
        assert_eq!((scope.tenant(), scope.owner()), (Some(&one), one.clone()));
        assert!(Scope::System.admits(&one) && Scope::System.admits(&two));
        assert_eq!((Scope::System.tenant(), Scope::System.owner()), (None, TenantId::default()));
        assert!(Scope::default().admits(&TenantId::default()) && !Scope::default().admits(&one));
    }
}
